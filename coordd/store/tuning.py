"""SQLite's process-wide settings, before its first use.

Every connection here is used by one thread at a time, so SQLite need not lock each of them, and nobody asks for its
memory statistics, which take a lock at every allocation. Measured: a tenth of the time of an op, see
docs/architecture.md#group-commit.
"""

import ctypes
import logging
from typing import Final

log = logging.getLogger(__name__)

MULTITHREAD: Final = 2  # SQLITE_CONFIG_MULTITHREAD: connections may be used by any thread, one thread at a time
MEMORY_STATUS: Final = 9  # SQLITE_CONFIG_MEMSTATUS


def tune() -> bool:
    """Apply the settings to the very library that Python's sqlite3 uses. Returns whether it could be done.

    It changes nothing but speed, so a Python whose SQLite cannot be reached goes on without.
    """
    import _sqlite3

    try:
        library = ctypes.CDLL(_sqlite3.__file__)
        shutdown, config, initialize = library.sqlite3_shutdown, library.sqlite3_config, library.sqlite3_initialize
    except (OSError, AttributeError, TypeError):
        log.debug("SQLite's library cannot be reached; its own defaults stay")
        return False
    config.argtypes, config.restype = [ctypes.c_int], ctypes.c_int
    shutdown()
    done = config(MULTITHREAD) == 0 and config(MEMORY_STATUS, ctypes.c_int(0)) == 0
    return bool(initialize() == 0) and done
