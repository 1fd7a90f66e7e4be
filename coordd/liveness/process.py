"""What the kernel says about processes: who one is, and when it ends.

A process number is reused, so a process is its number, the instant it began and the boot it began in. Its end is
seen at once: on Linux a pidfd becomes readable when the process has ended, reaped or not; a stopped process has not.
"""

import errno
import logging
import os
import select
import sys
from collections.abc import Callable
from typing import Final

import trio

from coordd.domain.anchor import Anchor
from coordd.domain.errors import AnchorForeign, AnchorGone

log = logging.getLogger(__name__)

Key = tuple[int, int]  # process number and start


def boot_id() -> str:
    """Names this boot of the machine; another one after every restart, none after a suspend."""
    if sys.platform == "linux":
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    return _darwin_boot()


def identify(pid: int, *, uid: int) -> Anchor:
    """The running process `pid` of user `uid` as an anchor.

    Raises: AnchorGone: no such process runs. AnchorForeign: it belongs to another user.
    """
    owner, start = owner_and_start(pid)
    if owner != uid:
        raise AnchorForeign(f"process {pid} belongs to another user; name one of your own", pid=pid)
    return Anchor("process", pid, start, boot_id())


def owner_and_start(pid: int) -> tuple[int, int]:
    """The real uid of a process and when it began: in clock ticks since boot on Linux, microseconds on macOS.

    Raises: AnchorGone: it does not run; an ended process that nobody has reaped yet does not.
    """
    if sys.platform != "linux":
        return _darwin_owner_and_start(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b") ")[2].split()  # a command's name may hold anything, `)` too
        with open(f"/proc/{pid}/status", "rb") as file:
            uid_line = next(line for line in file if line.startswith(b"Uid:"))
    except (OSError, StopIteration) as error:
        raise AnchorGone(f"process {pid} does not run; name one that does", pid=pid) from error
    if fields[0] in (b"Z", b"X"):
        raise AnchorGone(f"process {pid} has ended; name one that runs", pid=pid)
    return int(uid_line.split()[1]), int(fields[19])


def is_running(anchor: Anchor, boot: str) -> bool:
    """Whether the very process still runs."""
    if anchor.boot != boot:
        return False
    try:
        return owner_and_start(anchor.pid)[1] == anchor.start
    except AnchorGone:
        return False


if sys.platform == "linux":

    class ProcessWatch:
        """Calls back when watched processes end. One descriptor per process, one task for all of them."""

        def __init__(self, ended: Callable[[Key], None]) -> None:
            self._ended = ended
            self._epoll = select.epoll(flags=select.EPOLL_CLOEXEC)
            self._fds: dict[Key, int] = {}
            self._keys: dict[int, Key] = {}

        def add(self, anchor: Anchor) -> bool:
            """Watch the process; twice is once. False when it does not run any more.

            Where the kernel gives no descriptor the process is not watched, and `alive` asks each time.
            """
            key = (anchor.pid, anchor.start)
            if key in self._fds:
                return True
            try:
                fd = os.pidfd_open(anchor.pid)
            except OSError as error:
                if error.errno == errno.ESRCH:
                    return False
                log.warning("process %d cannot be watched (%s); it is looked at by the clock", anchor.pid, error)
                return is_running(anchor, anchor.boot)
            # Only now is the number pinned: what it names is compared with what was meant.
            if not is_running(anchor, anchor.boot):
                os.close(fd)
                return False
            self._fds[key], self._keys[fd] = fd, key
            self._epoll.register(fd, select.EPOLLIN)
            return True

        def remove(self, key: Key) -> None:
            fd = self._fds.pop(key, None)
            if fd is not None:
                del self._keys[fd]
                self._epoll.unregister(fd)
                os.close(fd)

        def alive(self, anchor: Anchor) -> bool:
            """Whether a watched process lives at this instant."""
            fd = self._fds.get((anchor.pid, anchor.start))
            if fd is None:
                return is_running(anchor, anchor.boot)
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            return not poll.poll(0)

        async def run(self) -> None:
            try:
                while True:
                    await trio.lowlevel.wait_readable(self._epoll.fileno())
                    for fd, _ in self._epoll.poll(0):
                        key = self._keys.get(fd)
                        if key is not None:
                            self.remove(key)
                            self._ended(key)
            finally:
                for key in list(self._fds):
                    self.remove(key)
                self._epoll.close()

else:

    class ProcessWatch:
        """The same over kqueue's NOTE_EXIT. Not run by the project's own tests."""

        def __init__(self, ended: Callable[[Key], None]) -> None:
            self._ended = ended
            self._kqueue = select.kqueue()
            self._keys: dict[int, Key] = {}

        def add(self, anchor: Anchor) -> bool:
            event = select.kevent(
                anchor.pid,
                select.KQ_FILTER_PROC,
                select.KQ_EV_ADD | select.KQ_EV_ONESHOT,
                select.KQ_NOTE_EXIT,
            )
            try:
                self._kqueue.control([event], 0)
            except OSError:
                return False
            if not is_running(anchor, anchor.boot):
                return False
            self._keys[anchor.pid] = (anchor.pid, anchor.start)
            return True

        def remove(self, key: Key) -> None:
            self._keys.pop(key[0], None)

        def alive(self, anchor: Anchor) -> bool:
            return is_running(anchor, anchor.boot)

        async def run(self) -> None:
            while True:
                await trio.lowlevel.wait_readable(self._kqueue.fileno())
                for event in self._kqueue.control(None, 64, 0):
                    key = self._keys.pop(event.ident, None)
                    if key is not None:
                        self._ended(key)


def _darwin_boot() -> str:
    """`kern.boottime` moves when the wall clock is stepped; `kern.bootsessionuuid` does not. Not run by our tests."""
    import subprocess

    done = subprocess.run(["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, check=True)
    return done.stdout.decode().strip()


_PROC_PIDTBSDINFO: Final = 3
_BSDINFO_BYTES: Final = 136


def _darwin_owner_and_start(pid: int) -> tuple[int, int]:
    """`proc_pidinfo` of libproc. Not run by our tests, but for the unpacking."""
    import ctypes

    library = ctypes.CDLL("/usr/lib/libproc.dylib")
    buffer = ctypes.create_string_buffer(_BSDINFO_BYTES)
    size = library.proc_pidinfo(pid, _PROC_PIDTBSDINFO, ctypes.c_uint64(0), buffer, _BSDINFO_BYTES)
    if size != _BSDINFO_BYTES:
        raise AnchorGone(f"process {pid} does not run; name one that does", pid=pid)
    return from_bsdinfo(buffer.raw)


def from_bsdinfo(data: bytes) -> tuple[int, int]:
    """Real uid and start in microseconds, from macOS's `struct proc_bsdinfo`."""
    import struct

    (real_uid,) = struct.unpack_from("I", data, 28)  # flags status xstatus pid ppid uid gid ruid
    seconds, microseconds = struct.unpack_from("QQ", data, 120)
    return real_uid, seconds * 1_000_000 + microseconds
