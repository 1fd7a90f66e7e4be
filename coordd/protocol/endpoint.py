"""Where the control socket and the state are: one resolver for the daemon and its clients.

Nothing but the standard library, and little of that: clients start with it. coordctl's fast path repeats the first
lines of `socket_path` by hand, and a test holds the two together.
"""

import os
import sys
from collections.abc import Mapping
from typing import Final

SOCKET_LIMIT: Final = 103 if sys.platform == "darwin" else 107  # bytes of a Unix socket's path
SOCKET_NAME: Final = "control.sock"


def state_dir(environ: Mapping[str, str], override: str | None = None, *, platform: str = sys.platform) -> str:
    """The state directory: `--state-dir`, COORDD_STATE_DIR, XDG_STATE_HOME, or the platform's place for it."""
    chosen = override or environ.get("COORDD_STATE_DIR")
    if chosen:
        return os.path.abspath(chosen)
    if base := environ.get("XDG_STATE_HOME"):
        return os.path.join(base, "coordd")
    home = environ.get("HOME") or os.path.expanduser("~")
    if platform == "darwin":
        return os.path.join(home, "Library", "Application Support", "coordd")
    return os.path.join(home, ".local", "state", "coordd")


def socket_path(
    environ: Mapping[str, str],
    override: str | None = None,
    *,
    state_override: str | None = None,
    platform: str = sys.platform,
) -> str:
    """The control socket: `--socket`, COORDD_SOCKET, the runtime directory, or the state directory.

    A state directory that was named beside the default one keeps its socket to itself, so that two daemons of one
    user never meet on one path.
    """
    chosen = override or environ.get("COORDD_SOCKET")
    if chosen:
        return os.path.abspath(chosen)
    named = state_override or environ.get("COORDD_STATE_DIR")
    runtime = environ.get("XDG_RUNTIME_DIR")
    if runtime and not named:
        return os.path.join(runtime, "coordd", SOCKET_NAME)
    return os.path.join(state_dir(environ, state_override, platform=platform), SOCKET_NAME)


def config_path(environ: Mapping[str, str], override: str | None = None, *, platform: str = sys.platform) -> str:
    """The configuration file: `--config`, COORDD_CONFIG, XDG_CONFIG_HOME, or the platform's place for it."""
    chosen = override or environ.get("COORDD_CONFIG")
    if chosen:
        return os.path.abspath(chosen)
    if base := environ.get("XDG_CONFIG_HOME"):
        return os.path.join(base, "coordd", "config.toml")
    home = environ.get("HOME") or os.path.expanduser("~")
    if platform == "darwin":
        return os.path.join(home, "Library", "Application Support", "coordd", "config.toml")
    return os.path.join(home, ".config", "coordd", "config.toml")
