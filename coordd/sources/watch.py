"""Seeing at once that a file of a source was made, changed, replaced or removed.

The directory is watched, not the file: editors and exporters replace a file by renaming another over it. On Linux
inotify is called through ctypes, which trio has loaded anyway; the library `watchfiles` would do the same for 1.6 MiB
of the 30 that an idle daemon may hold. Where there is no inotify, or no more of it, names, sizes and times of the
files are looked at twice a second; so is a directory that does not exist yet, until it does.

Everything runs in the task that calls `changed`; there are no threads.
"""

import ctypes
import errno
import logging
import os
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import trio

log = logging.getLogger(__name__)

LOOK_S: Final = 0.5  # between two looks where nothing tells of a change
QUIET_S: Final = 0.05  # without another event, and the change is over
BURST_S: Final = 0.5  # a change that goes on is told after this time all the same
STRAY_S: Final = 0.02  # pause after events of other files: a database in the same directory must not keep us busy

_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x2, 0x4, 0x8
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF = 0x400, 0x800
_UNMOUNT, _OVERFLOW, _IGNORED = 0x2000, 0x4000, 0x8000
_ONLYDIR: Final = 0x1000000
_GONE: Final = _DELETE_SELF | _MOVE_SELF | _UNMOUNT | _IGNORED
_MASK: Final = (
    _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
)
_HEADER: Final = struct.Struct("iIII")  # watch, mask, cookie, length of the name
_BUFFER_BYTES: Final = 65_536


class Place(NamedTuple):
    """A directory, and which of its entries matter."""

    directory: str
    accepts: Callable[[str], bool]


class Event(NamedTuple):
    watch: int
    mask: int
    name: str  # empty for the directory itself


class Inotify:
    """The kernel's queue of file events. Raises OSError where there is none, or the user has used up their share."""

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, "no inotify on this platform")
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)

    def add(self, directory: str) -> int:
        return self._call("inotify_add_watch", self.fd, os.fsencode(directory), ctypes.c_uint32(_MASK | _ONLYDIR))

    def remove(self, watch: int) -> None:
        try:
            self._call("inotify_rm_watch", self.fd, watch)
        except OSError as error:
            if error.errno != errno.EINVAL:  # the kernel has removed it by itself
                raise

    def events(self) -> Iterator[Event]:
        """What has been queued until now."""
        while True:
            try:
                data = os.read(self.fd, _BUFFER_BYTES)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                watch, mask, _, length = _HEADER.unpack_from(data, at)
                at += _HEADER.size
                yield Event(watch, mask, os.fsdecode(data[at : at + length].rstrip(b"\0")))
                at += length

    def close(self) -> None:
        os.close(self.fd)

    def _call(self, name: str, *arguments: object) -> int:
        done = int(getattr(self._libc, name)(*arguments))
        if done < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return done


Identity = tuple[int, int]  # of a directory: device and inode
Look = tuple[Identity, tuple[tuple[str, int, int, int], ...]] | None


class _Watched:
    """One place: by its watch while it has one, else by how it looked last."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.watch: int | None = None
        self.identity: Identity | None = None
        self.look: Look = None
        self.is_told = False  # that it cannot be watched


class Watch:
    """Tells that something changed at one of its places. Used by one task.

    Args:
        inotify: None to look twice a second instead. On macOS that is what there is; the project's own tests run it
            on Linux only.
    """

    def __init__(self, places: tuple[Place, ...], inotify: Inotify | None) -> None:
        self._inotify = inotify
        self._watched = [_Watched(place) for place in places]
        self._changed = False
        self._is_waiting = False
        self._is_closed = False
        for watched in self._watched:
            if not self._arm(watched):
                watched.look = _look(watched.place)

    async def changed(self) -> None:
        """Return once something has changed since this last returned, or since the watch was made.

        A burst of changes is told once, when 50 ms passed without another or after half a second. When the caller is
        cancelled the change is not forgotten: the next call returns.

        Raises: trio.ClosedResourceError: the watch was closed.
        """
        while not self._check():
            await self._wait(LOOK_S if self._must_look() else float("inf"))
            if not self._check():
                await trio.sleep(STRAY_S)
        now = trio.current_time()
        end, quiet = now + BURST_S, now + QUIET_S
        while trio.current_time() < min(end, quiet):
            await self._wait(min(end, quiet) - trio.current_time())
            if self._check(anew=True):
                quiet = trio.current_time() + QUIET_S
        self._changed = False

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._inotify is not None:
            if self._is_waiting:
                trio.lowlevel.notify_closing(self._inotify.fd)
            self._inotify.close()

    async def _wait(self, seconds: float) -> None:
        """Until an event comes, for `seconds` at most."""
        if self._is_closed:
            raise trio.ClosedResourceError("the watch was closed")
        if self._inotify is None:
            await trio.sleep(seconds)
            return
        self._is_waiting = True
        try:
            with trio.move_on_after(seconds):
                await trio.lowlevel.wait_readable(self._inotify.fd)
        finally:
            self._is_waiting = False

    def _check(self, *, anew: bool = False) -> bool:
        """Take in what happened. Whether anything did: since the last return, or with `anew` since the last check."""
        if self._is_closed:
            raise trio.ClosedResourceError("the watch was closed")
        happened = self._drain()
        for watched in self._watched:
            happened |= self._review(watched)
        self._changed |= happened
        return happened if anew else self._changed

    def _drain(self) -> bool:
        happened = False
        for event in self._inotify.events() if self._inotify is not None else ():
            if event.mask & _OVERFLOW:
                happened = True
            for watched in self._watched:
                if watched.watch != event.watch:
                    continue
                if event.mask & _GONE:
                    self._disarm(watched)
                if event.mask & _GONE or not event.name or watched.place.accepts(event.name):
                    happened = True
        return happened

    def _review(self, watched: _Watched) -> bool:
        """Whether a place is another one than it was, by its own state and not by an event."""
        if watched.watch is not None:
            if watched.identity == _identity(watched.place.directory):
                return False
            self._disarm(watched)  # moved away with a directory above it
            return True
        if self._arm(watched):
            return True  # it was made, and perhaps filled, before it was watched
        look = _look(watched.place)
        if look == watched.look:
            return False
        watched.look = look
        return True

    def _arm(self, watched: _Watched) -> bool:
        if self._inotify is None:
            return False
        before = _identity(watched.place.directory)
        if before is None:
            return False
        try:
            watch = self._inotify.add(watched.place.directory)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR) and not watched.is_told:
                watched.is_told = True
                log.warning("%s is looked at twice a second, not watched: %s", watched.place.directory, error)
            return False
        # If it was replaced in between, the identity is found to be another one at the next look.
        watched.watch, watched.identity = watch, before
        return True

    def _disarm(self, watched: _Watched) -> None:
        if self._inotify is not None and watched.watch is not None:
            self._inotify.remove(watched.watch)
        watched.watch = watched.identity = watched.look = None

    def _must_look(self) -> bool:
        """Whether a change could come without an event."""
        return any(watched.watch is None and not self._is_announced(watched) for watched in self._watched)

    def _is_announced(self, watched: _Watched) -> bool:
        """Whether there is nothing to look at, and an event of the directory above will tell when there is."""
        above, name = os.path.split(watched.place.directory)
        return watched.look is None and any(
            other.watch is not None and other.place.directory == above and other.place.accepts(name)
            for other in self._watched
        )


def open_watch(places: tuple[Place, ...]) -> Watch:
    """A watch over `places` by the best means there are."""
    inotify = None
    if sys.platform == "linux":
        try:
            inotify = Inotify()
        except OSError as error:
            log.warning("files are looked at twice a second, since inotify is not to be had: %s", error)
    return Watch(places, inotify)


def _identity(directory: str) -> Identity | None:
    try:
        status = os.stat(directory)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _look(place: Place) -> Look:
    """How the entries that matter look now; None where there is no directory to look into."""
    identity = _identity(place.directory)
    if identity is None:
        return None
    entries = []
    try:
        with os.scandir(place.directory) as listing:
            for entry in listing:
                if place.accepts(entry.name):
                    try:
                        status = entry.stat()
                    except OSError:
                        status = entry.stat(follow_symlinks=False)
                    entries.append((entry.name, status.st_ino, status.st_size, status.st_mtime_ns))
    except OSError:
        return None
    return identity, tuple(sorted(entries))
