"""Binds the control socket so that nobody but its owner ever reaches it. Source: docs/service.md#the-control-socket

Call `bind` while holding the lock of the state directory and before any thread runs: the umask belongs to the
whole process.
"""

import contextlib
import errno
import logging
import os
import socket
import stat
from typing import Final

from coordd.domain.errors import StartRefused
from coordd.protocol.endpoint import SOCKET_LIMIT

log = logging.getLogger(__name__)

BACKLOG: Final = 4096  # the kernel caps it at net.core.somaxconn

Identity = tuple[int, int]  # device and inode


def bind(path: str) -> socket.socket:
    """A listening, non-blocking socket at `path`: mode 0600, in a directory of mode 0700 that is ours.

    The directory is created when it is missing, and a dead socket of ours is replaced.

    Raises: StartRefused: nothing was bound; `cause` is one of socket_path, socket_path_too_long, socket_directory,
        already_running, socket_taken, socket_bind.
    """
    check_path(path)
    _prepare_directory(os.path.dirname(path))
    _clear(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bound = False
    try:
        before = os.umask(0o177)
        try:
            sock.bind(path)
            bound = True
        finally:
            os.umask(before)
        _verify(path)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except BaseException as error:
        if bound:
            unlink_own(path, identity(path))
        sock.close()
        if isinstance(error, OSError):
            raise _refused(f"{path} could not be bound: {error.strerror}; see --socket", "socket_bind") from error
        raise
    return sock


def check_path(path: str) -> None:
    """Refuse what the kernel would cut short or take for something else; the path itself is not looked at.

    Raises: StartRefused (cause socket_path or socket_path_too_long).
    """
    if not os.path.isabs(path) or "\0" in path or os.path.basename(path) in ("", ".", ".."):
        raise _refused("the socket has to be named by an absolute path; see --socket and COORDD_SOCKET", "socket_path")
    length = len(os.fsencode(path))
    if length > SOCKET_LIMIT:
        raise StartRefused(
            f"the socket path {path} has {length} bytes and this system allows {SOCKET_LIMIT}; "
            "name a shorter one with --socket or COORDD_SOCKET",
            cause="socket_path_too_long",
            length=length,
            limit=SOCKET_LIMIT,
        )


def identity(path: str) -> Identity | None:
    """Which file it is that stands at `path` now; None when nothing does."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def unlink_own(path: str, own: Identity | None) -> bool:
    """Remove the very socket that was bound, and nothing that has taken its place. Returns whether it was removed.

    Call it before the lock of the state directory is let go: a successor's socket may be given the same inode.
    """
    try:
        found = os.lstat(path)
        if own is None or not stat.S_ISSOCK(found.st_mode) or (found.st_dev, found.st_ino) != own:
            return False
        os.unlink(path)
    except FileNotFoundError:
        return False
    except OSError as error:  # at the end of a run; the next one clears it away
        log.warning("the control socket could not be removed: %s", error)
        return False
    return True


def _prepare_directory(directory: str) -> None:
    try:
        os.makedirs(os.path.dirname(directory), exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, 0o700)
        found = os.lstat(directory)
    except OSError as error:
        raise _refused(
            f"{directory} cannot hold the control socket: {error.strerror}; name another place with --socket",
            "socket_directory",
        ) from error
    if stat.S_ISLNK(found.st_mode):
        wrong = "is a symbolic link; name the directory itself"
    elif not stat.S_ISDIR(found.st_mode):
        wrong = "is not a directory; name another place"
    elif found.st_uid != os.geteuid():
        wrong = "belongs to another user; name another place"
    elif found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        wrong = f"is open to other users (mode {mode:04o}); run `chmod 700` on it, or name another place"
    else:
        return
    raise _refused(f"{directory} {wrong} with --socket", "socket_directory")


def _clear(path: str) -> None:
    """Remove a dead socket of ours; refuse whatever else stands there."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _refused(f"{path} cannot be looked at: {error.strerror}; see --socket", "socket_taken") from error
    if not stat.S_ISSOCK(found.st_mode):
        raise _refused(f"{path} exists and is not a socket; move it away, or see --socket", "socket_taken")
    if found.st_uid != os.geteuid():
        raise _refused(f"{path} belongs to another user; see --socket", "socket_taken")
    code = _knock(path)
    if code in (0, errno.EAGAIN, errno.EINPROGRESS):  # EAGAIN: it lives, and its queue is full
        raise _refused(f"a server answers at {path} already; use it, or end it with `coordctl stop`", "already_running")
    if code == errno.ENOENT:
        return
    # macOS says this of a full queue too; the lock, which the caller holds, says that no coordd of this store lives.
    if code != errno.ECONNREFUSED:
        raise _refused(
            f"{path} is in use by something else ({os.strerror(code)}); move it away, or see --socket", "socket_taken"
        )
    unlink_own(path, (found.st_dev, found.st_ino))


def _knock(path: str) -> int:
    """What the kernel answers to a client of `path`; never waits."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        return client.connect_ex(path)


def _verify(path: str) -> None:
    """A file system may ignore modes or owners; then the peer check alone would stand between us and others."""
    found = os.lstat(path)
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid() or mode != 0o600:
        raise _refused(
            f"{path} came out with mode {mode:04o} and not as a socket of ours with 0600, so its file system "
            "protects nothing; name another place with --socket",
            "socket_bind",
        )


def _refused(message: str, cause: str) -> StartRefused:
    return StartRefused(message, cause=cause)
