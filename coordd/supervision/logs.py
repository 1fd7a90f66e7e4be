"""Where log lines go and what they look like. Source: docs/service.md#logs

One record is one line: whatever would break a line, move a cursor or turn text around is escaped, so that no text
from outside can pass for a record. `logging.handlers` would cost half a megabyte of memory; the capped file is here.
"""

import contextlib
import logging
import os
import stat
import sys
import time
from collections.abc import Mapping
from typing import IO, Final, Literal

from coordd.domain.errors import StartRefused

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["text", "json"]

FILE_VARIABLE: Final = "COORDD_LOG_FILE"  # set by whatever starts the daemon and keeps no stderr: launchd's plist
OLDER: Final = ".1"
CONTINUED: Final = "  | "  # begins no record, so a line of a traceback cannot be taken for one
TAIL_BYTES: Final = 4 * 1024 * 1024  # read of each file for the last lines

# syslog's severities, which journald reads from the head of a line
_PRIORITY: Final = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))


def set_up(
    *,
    level: Level = "info",
    format: Format = "text",
    file: str | None = None,
    file_bytes: int = 2_000_000,
    stream: IO[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> None:
    """Send coordd's records of `level` and above, and warnings of the libraries, to one place.

    Libraries stay at warnings even when coordd is at debug: what they say at debug may hold headers and URLs.
    Calling it again, on a reload, replaces what it set up before and reopens the file.

    Args:
        file: where no supervisor keeps stderr. It stays below `file_bytes`, and so does the one older file.
        stream, environ: stderr and os.environ unless given.
    Raises: StartRefused (cause log_file): the file cannot be written, or is not a plain file of ours.
    """
    stream = sys.stderr if stream is None else stream
    journal = file is None and is_journal(stream, os.environ if environ is None else environ)
    handler = logging.StreamHandler(stream) if file is None else CappedFile(file, file_bytes)
    handler.setFormatter(JsonLines(journal=journal) if format == "json" else TextLines(journal=journal))
    root = logging.getLogger()
    before = [old for old in root.handlers if isinstance(old.formatter, _Lines)]
    root.addHandler(handler)
    for old in before:
        root.removeHandler(old)
        old.close()
    threshold = logging.getLevelNamesMapping()[level.upper()]
    root.setLevel(max(threshold, logging.WARNING))
    logging.getLogger("coordd").setLevel(threshold)


def is_journal(stream: IO[str], environ: Mapping[str, str]) -> bool:
    """Whether `stream` is what journald reads; a child whose stderr was sent elsewhere inherits the variable too."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError, AttributeError):  # closed, or not a file
        return False
    return environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def trim_stderr(path: str, limit: int) -> None:
    """Empty the file at `path` if stderr goes there and it has grown beyond `limit` bytes.

    launchd keeps in it what a start says before the log is set up, appends, and never shortens it.
    """
    with contextlib.suppress(OSError, ValueError, AttributeError):
        fd = sys.stderr.fileno()
        found = os.fstat(fd)
        if stat.S_ISREG(found.st_mode) and found.st_size > limit and os.path.samestat(found, os.lstat(path)):
            os.ftruncate(fd, 0)


def escape(text: str) -> str:
    """`text` with every character that is not printable (breaks, controls, bidi marks, surrogates) as `\\x1b`.

    Backslashes stay as they are, so this tells what is harmless, not what exactly was there.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class _Lines(logging.Formatter):
    def __init__(self, *, journal: bool) -> None:
        super().__init__()
        self._journal = journal

    def _prefix(self, record: logging.LogRecord) -> str:
        return f"<{priority(record.levelno)}>" if self._journal else ""


class TextLines(_Lines):
    """`2026-11-30T12:00:00.123Z info coordd.services.reaper message`; journald adds time and level itself."""

    def format(self, record: logging.LogRecord) -> str:
        prefix = self._prefix(record)
        head = "" if self._journal else f"{instant(record.created)} {record.levelname.lower()} "
        lines = [f"{prefix}{head}{record.name} {escape(record.getMessage())}"]
        lines += [f"{prefix}{CONTINUED}{escape(line)}" for line in _trace(record).splitlines()]
        return "\n".join(lines)


class JsonLines(_Lines):
    """An object a line: time, level, logger, message, and exception where there is one. ASCII only."""

    def format(self, record: logging.LogRecord) -> str:
        import json  # only for those who choose it

        said = {
            "time": instant(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        trace = _trace(record)
        if trace:
            said["exception"] = trace
        return self._prefix(record) + json.dumps(said).replace("\x7f", "\\u007f")


class CappedFile(logging.Handler):
    """Appends to a file of mode 0600 that never grows beyond `max_bytes`: then it becomes the older one, and a new
    one begins. For one process; its threads take turns by the handler's lock.

    What cannot be written is counted, and the number is told when writing works again.
    """

    def __init__(self, path: str, max_bytes: int) -> None:
        super().__init__()
        self.path = path
        self._max_bytes = max_bytes
        self._lost = 0
        self._fd = -1
        try:
            os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o700, exist_ok=True)
            self._open()
        except OSError as error:
            raise StartRefused(
                f"the log file {path} cannot be written: {error.strerror}; name another, or make room", cause="log_file"
            ) from error

    def _open(self) -> None:
        # Not blocking: a pipe without a reader would hold up the start.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        fd = os.open(self.path, flags, 0o600)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            os.close(fd)
            raise StartRefused(f"{self.path} is not a plain file of ours; name another log file", cause="log_file")
        os.fchmod(fd, 0o600)
        self._fd, self._size = fd, found.st_size

    def emit(self, record: logging.LogRecord) -> None:
        try:
            data = (self.format(record) + "\n").encode("utf-8", "backslashreplace")
        except Exception:
            self.handleError(record)  # wrong arguments: a bug to be seen
            return
        try:
            if self._lost:
                note = f"{instant(record.created)} warning {__name__} {self._lost} records were lost: no room\n"
                self._append(note.encode())
                self._lost = 0
            self._append(data)
        except (OSError, StartRefused):  # the latter: something else was put in the file's place
            self._lost += 1

    def _append(self, data: bytes) -> None:
        if len(data) > self._max_bytes:
            data = data[: self._max_bytes - 1] + b"\n"
        if self._fd < 0 or self._size + len(data) > self._max_bytes:
            self._rotate()
        if os.write(self._fd, data) < len(data):  # the disk has filled up; half a record would run into the next
            os.ftruncate(self._fd, self._size)
            raise OSError("no room for the whole record")
        self._size += len(data)

    def _rotate(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        # Gone already when the last attempt failed half-way.
        with contextlib.suppress(FileNotFoundError):
            os.replace(self.path, self.path + OLDER)
        self._open()

    def close(self) -> None:
        self.acquire()
        try:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
        finally:
            self.release()
        super().close()


def tail(path: str, lines: int) -> list[str]:
    """The last `lines` lines of the log, oldest first, from the older file too; fewer where there are no more.

    Of each file at most the last 4 MiB are looked at. A missing file has no lines.
    """
    found = _last_lines(path, lines)
    if len(found) < lines:
        found = _last_lines(path + OLDER, lines - len(found)) + found
    return found


def _last_lines(path: str, lines: int) -> list[str]:
    if lines <= 0:
        return []
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return []
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return []
        at, floor = found.st_size, max(0, found.st_size - TAIL_BYTES)
        blocks: list[bytes] = []
        breaks = 0
        while at > floor and breaks <= lines:
            size = min(65_536, at - floor)
            at -= size
            blocks.append(os.pread(fd, size, at))
            breaks += blocks[-1].count(b"\n")
    finally:
        os.close(fd)
    whole = b"".join(reversed(blocks)).split(b"\n")
    if at > 0:
        del whole[0]  # the end of a line, or more than was asked for
    if whole and not whole[-1]:
        del whole[-1]
    return [escape(line.decode("utf-8", "replace")) for line in whole[-lines:]]


def instant(seconds: float) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    whole, ms = divmod(int(seconds * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{ms:03d}Z"


def priority(level: int) -> int:
    return next((severity for floor, severity in _PRIORITY if level >= floor), 7)


def _trace(record: logging.LogRecord) -> str:
    if record.exc_info and not record.exc_text:
        record.exc_text = logging.Formatter().formatException(record.exc_info)
    return "\n".join(part for part in (record.exc_text, record.stack_info) if part)
