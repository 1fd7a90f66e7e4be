"""Reading one file whole while others may write or replace it, and whatever stands at its name."""

import errno
import os
import stat
from typing import NamedTuple

from coordd.domain.errors import SourceFailed
from coordd.sources.base import failure

_CAUSE_OF = {
    errno.ENOENT: "missing",
    errno.ENOTDIR: "missing",
    errno.ELOOP: "symlink_loop",
    errno.EISDIR: "is_directory",
}


class Stamp(NamedTuple):
    """Tells one content of a file from another."""

    device: int
    inode: int
    size: int
    mtime_ns: int


class Reading(NamedTuple):
    data: bytes
    stamp: Stamp
    steady: bool  # False: it was written or replaced meanwhile


def read_file(path: str, *, source: str, max_bytes: int) -> Reading:
    """The bytes of a regular file.

    Nothing but a regular file is opened: opening a pipe waits, and opening a device can act on it.

    Raises: SourceFailed: missing, dangling_link, symlink_loop, is_directory, not_a_file, file_too_large, unreadable.
    """
    try:
        _check(os.stat(path), path, source, max_bytes)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            opened = os.fstat(fd)
            _check(opened, path, source, max_bytes)
            data = _read(fd, max_bytes + 1)
        finally:
            os.close(fd)
        there = os.stat(path)
    except OSError as error:
        raise os_failure(error, path, source) from error
    if len(data) > max_bytes:
        raise failure(source, "file_too_large", path, limit=max_bytes)
    stamp = _stamp(opened)
    return Reading(data, stamp, stamp == _stamp(there) and len(data) == opened.st_size)


def os_failure(error: OSError, path: str, source: str) -> SourceFailed:
    """The failure for an error of the system."""
    cause = _CAUSE_OF.get(error.errno or 0, "unreadable")
    if cause == "missing" and os.path.islink(path):
        cause = "dangling_link"
    return failure(source, cause, path, errno=errno.errorcode.get(error.errno or 0, "other"))


def _check(status: os.stat_result, path: str, source: str, max_bytes: int) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise failure(source, "is_directory", path)
    if not stat.S_ISREG(status.st_mode):
        raise failure(source, "not_a_file", path)
    if status.st_size > max_bytes:
        raise failure(source, "file_too_large", path, size=status.st_size, limit=max_bytes)


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _read(fd: int, most: int) -> bytes:
    """Until the end, but `most` bytes at most: a file can grow while it is read."""
    parts = []
    while most and (part := os.read(fd, min(most, 1 << 20))):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)
