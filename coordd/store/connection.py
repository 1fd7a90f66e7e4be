"""How the one SQLite file is opened, and what its errors mean to a caller."""

import sqlite3
from typing import Final

from coordd.domain.errors import StoreUnavailable

OLDEST_SQLITE: Final = (3, 37, 0)  # STRICT tables
CACHE_KIB: Final = 8192  # what the idle daemon may keep of the file is bounded; a busy one re-reads from the page cache
BUSY_TIMEOUT_S: Final = 5.0

_CAUSES: Final[dict[int, str]] = {
    sqlite3.SQLITE_FULL: "disk_full",
    sqlite3.SQLITE_READONLY: "read_only",
    sqlite3.SQLITE_CORRUPT: "corrupt",
    sqlite3.SQLITE_NOTADB: "corrupt",
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
}
_REMEDIES: Final[dict[str, str]] = {
    "disk_full": "free some space on its disk",
    "read_only": "make the file and its directory writable",
    "corrupt": "stop the daemon and restore a backup with `coordctl restore`",
    "locked": "end the other program that writes to it",
    "io": "see the daemon's log, and the disk's health",
}


def open_writer(path: str) -> sqlite3.Connection:
    """The connection that writes: autocommit mode, WAL, every commit synced to disk.

    It never waits for a lock by itself, because it is used on the event loop: the writer tries again instead.
    """
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, cached_statements=256, timeout=0, uri=False
    )
    for pragma in (
        "journal_mode = wal",
        "synchronous = full",
        "foreign_keys = on",
        f"cache_size = -{CACHE_KIB}",
        "wal_autocheckpoint = 4000",
        "journal_size_limit = 67108864",
    ):
        connection.execute(f"pragma {pragma}").fetchall()
    return connection


def open_reader(path: str) -> sqlite3.Connection:
    """A connection that cannot write, for reads that must not wait for the writer."""
    connection = sqlite3.connect(
        f"file:{_uri_path(path)}?mode=ro",
        isolation_level=None,
        check_same_thread=False,
        cached_statements=64,
        timeout=BUSY_TIMEOUT_S,
        uri=True,
    )
    connection.execute("pragma query_only = on").fetchall()
    connection.execute("pragma cache_size = -1024").fetchall()
    return connection


def unavailable(error: sqlite3.Error) -> StoreUnavailable:
    """The refusal that a caller gets for an error of SQLite: a stable cause, and no text of the library's."""
    primary = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    cause = _CAUSES.get(primary, "io")
    words = {"disk_full": "the disk is full", "read_only": "it is read-only", "corrupt": "it is damaged"}
    what = words.get(cause, "it is locked by another program" if cause == "locked" else "the disk reports an error")
    return StoreUnavailable(f"the store cannot be used, {what}; {_REMEDIES[cause]}", cause=cause)


def _uri_path(path: str) -> str:
    from urllib.parse import quote

    return quote(path)
