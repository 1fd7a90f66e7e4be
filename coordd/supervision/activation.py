"""The control socket as systemd hands it over: bound and listening before the daemon runs.

Descriptors begin at 3; the environment says how many there are, what they are called and for which process.
"""

import logging
import os
import socket
import stat
from collections.abc import MutableMapping
from typing import Final

from coordd.domain.errors import StartRefused

log = logging.getLogger(__name__)

FIRST_FD: Final = 3
NAME: Final = "control"  # FileDescriptorName= in coordd.socket
VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID")


def activated_socket(environ: MutableMapping[str, str] | None = None) -> socket.socket | None:
    """The listening socket that this process was given, or None; it is not to be unlinked by us.

    Call it once, early: the variables are removed, so that no child takes them for its own. Sockets that are not
    used are closed.

    Args: environ: os.environ unless given.
    Raises: StartRefused (cause `activation`): what was given is not one listening Unix stream socket.
    """
    environ = os.environ if environ is None else environ
    pid, count, names, _ = (environ.pop(variable, "") for variable in VARIABLES)
    if pid != str(os.getpid()) or count in ("", "0"):
        return None
    if not (count.isascii() and count.isdigit() and len(count) <= 4):
        raise _refused("LISTEN_FDS is not a number of descriptors")
    fds = range(FIRST_FD, FIRST_FD + int(count))
    for fd in fds:
        _make_ours(fd)
    chosen = FIRST_FD + choose(int(count), names)
    for fd in fds:
        if fd != chosen:
            log.warning("descriptor %d was handed over and is not used; only the socket named %s is", fd, NAME)
            os.close(fd)
    return _adopt(chosen)


def choose(count: int, names: str) -> int:
    """Which of `count` descriptors is the control socket: the only one, or the only one with its name.

    Args: names: LISTEN_FDNAMES, separated by colons.
    Raises: StartRefused.
    """
    if count == 1:
        return 0
    named = [index for index, name in enumerate(names.split(":")[:count]) if name == NAME]
    if len(named) != 1:
        raise _refused(f"{count} sockets were handed over and {len(named)} of them are named {NAME}")
    return named[0]


def _make_ours(fd: int) -> None:
    try:
        os.set_inheritable(fd, False)
    except OSError as error:
        raise _refused(f"descriptor {fd} is announced and not open") from error


def _adopt(fd: int) -> socket.socket:
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        raise _refused(f"descriptor {fd} is not a socket")
    sock = socket.socket(fileno=fd)  # family and type are the kernel's word
    if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM:
        wrong = "is not a Unix stream socket"
    elif not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        wrong = "does not listen"
    else:
        sock.setblocking(False)
        return sock
    sock.close()
    raise _refused(f"descriptor {fd} {wrong}")


def _refused(what: str) -> StartRefused:
    return StartRefused(f"{what}; correct coordd.socket, or start coordd without socket activation", cause="activation")
