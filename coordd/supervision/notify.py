"""Tells the service manager how the daemon is: systemd's notification protocol, and nothing where nobody listens.

A message is a datagram of `NAME=value` lines. Nothing here raises: a daemon does not fail because its supervisor
does not listen.
"""

import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Final

import trio

log = logging.getLogger(__name__)

SEND_S: Final = 0.2  # the loop stands still meanwhile; the manager's queue is full only when it does not read
STATUS_CHARACTERS: Final = 200


class Notifier:
    """Without an address every call does nothing.

    Args:
        address: of a datagram socket: an absolute path, or `@` and a name in Linux's abstract name space.
        watchdog_s: seconds between two signs of life, or None when the manager wants none.
    """

    def __init__(self, address: str | None, *, watchdog_s: float | None = None) -> None:
        if address is not None and address[:1] not in ("/", "@"):
            log.warning("the service manager's address is of a kind that is not supported; it will hear nothing")
            address = None
        self._address = None if address is None else _kernel_name(address)
        self.watchdog_s = None if address is None else watchdog_s

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str] | None = None) -> "Notifier":
        """Read what the manager has set, and remove it, so that no child speaks in the daemon's name.

        Args: environ: os.environ unless given.
        """
        environ = os.environ if environ is None else environ
        address = environ.pop("NOTIFY_SOCKET", None) or None
        limit_us = environ.pop("WATCHDOG_USEC", "")
        pid = environ.pop("WATCHDOG_PID", "")
        return cls(address, watchdog_s=_watchdog_s(limit_us, pid))

    def ready(self, status: str = "ready") -> None:
        """The start, or a reload, is over."""
        self._send("READY=1", _status(status))

    def reloading(self) -> None:
        """A reload has begun; `ready` ends it."""
        # The stamp tells the manager which of its own signals this answers.
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def status(self, text: str) -> None:
        """One line for `systemctl status`: counts and states, no work text."""
        self._send(_status(text))

    def watchdog(self) -> None:
        self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.settimeout(SEND_S)
                sock.connect(self._address)
                sock.send("\n".join(lines).encode("utf-8", "backslashreplace"))
        except OSError as error:
            log.warning("the service manager could not be told %s: %s", lines[0].partition("=")[0], error)


async def run_watchdog(notifier: Notifier, healthy: Callable[[], Awaitable[bool]]) -> None:
    """Give a sign of life at half the manager's limit, as long as `healthy` says so; for ever, or not at all.

    A check that is false, raises or does not return gives no sign, and the manager ends and restarts the daemon.
    """
    interval_s = notifier.watchdog_s
    if interval_s is None:
        return
    next_at = trio.current_time()
    was_healthy = True
    while True:
        is_healthy = await _ask(healthy)
        if is_healthy:
            notifier.watchdog()
        if is_healthy is not was_healthy:
            if is_healthy:
                log.info("the daemon is healthy again")
            else:
                log.error("the daemon is not healthy, and the watchdog gets no sign of life until it is")
        was_healthy = is_healthy
        # From the last instant it was due, so that a slow check does not stretch the interval towards the limit.
        next_at = max(next_at + interval_s, trio.current_time())
        await trio.sleep_until(next_at)


async def _ask(healthy: Callable[[], Awaitable[bool]]) -> bool:
    try:
        return await healthy()
    except Exception as error:
        log.error("the health check failed with %s", type(error).__name__)  # noqa: TRY400 - its text may hold anything
        return False


def _kernel_name(address: str) -> str | bytes:
    """`@name` is written with a zero byte where the kernel wants it."""
    return b"\0" + os.fsencode(address[1:]) if address[0] == "@" else address


def _status(text: str) -> str:
    """One line, whatever the text: a line break would begin another message."""
    return "STATUS=" + "".join(c if c.isprintable() else " " for c in text[:STATUS_CHARACTERS])


def _watchdog_s(limit_us: str, pid: str) -> float | None:
    """Half the manager's limit in seconds; None where there is none, or where it is meant for another process."""
    if not limit_us:
        return None
    if not (limit_us.isascii() and limit_us.isdigit() and len(limit_us) <= 18 and int(limit_us) > 0):
        log.warning("WATCHDOG_USEC is not a number of microseconds; the watchdog is off")
        return None
    if pid and pid != str(os.getpid()):
        return None
    return int(limit_us) / 2_000_000
