"""One daemon per state directory. The kernel's lock is the truth, never the presence of a file."""

import errno
import fcntl
import os

from coordd.domain.errors import StoreRefused

LOCK_NAME = "coordd.lock"


class StateLock:
    """Held from `acquire` until `release` or the end of the process, however it ends.

    The file stays: to remove it would let two processes lock two files of one name.
    """

    def __init__(self, state_dir: str) -> None:
        self.path = os.path.join(state_dir, LOCK_NAME)
        self._fd: int | None = None

    def acquire(self) -> None:
        """Raises: StoreRefused (cause `already_running`): another process holds it."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(fd, 32).decode("ascii", "replace").strip()
            os.close(fd)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            who = f"process {holder}" if holder.isdigit() else "another process"
            raise StoreRefused(
                f"{who} serves {os.path.dirname(self.path)} already; use it, or end it with `coordctl stop`",
                cause="already_running",
            ) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)  # for the message above; nobody decides by it
        self._fd = fd

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
