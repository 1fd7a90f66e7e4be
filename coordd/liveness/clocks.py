"""The clocks of a real machine.

The lease clock runs on the monotonic clock, which no step of the wall clock moves and which stands still while the
machine sleeps: time asleep is not silence. So that deadlines in the store keep their meaning across a restart of
the daemon, the distance between the two is kept with the name of the boot it holds for.
"""

import sys
import time
from collections.abc import Callable
from typing import Final

if sys.platform == "darwin":  # there, CLOCK_MONOTONIC counts the sleep and CLOCK_UPTIME_RAW does not
    AWAKE: Final = time.CLOCK_UPTIME_RAW
    SINCE_BOOT: Final = time.CLOCK_MONOTONIC
else:
    AWAKE: Final = time.CLOCK_MONOTONIC
    SINCE_BOOT: Final = time.CLOCK_BOOTTIME


class SystemClock:
    """Lease time is `offset_ms` plus the milliseconds this boot has been awake."""

    def __init__(self, offset_ms: int = 0) -> None:
        self.offset_ms = offset_ms

    def lease_ms(self) -> int:
        return self.offset_ms + time.clock_gettime_ns(AWAKE) // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


def offset_for(
    boot: str, kept_boot: str | None, kept_offset_ms: int, latest_ms: int, *, wall_ms: int, awake_ms: int
) -> int:
    """The offset to run the lease clock with, so that it never goes back.

    Args:
        kept_boot, kept_offset_ms: what the last run kept.
        latest_ms: the latest instant on the lease clock that the store has seen.
    """
    if boot == kept_boot:
        return kept_offset_ms
    return max(wall_ms, latest_ms) - awake_ms


def asleep_ms() -> int:
    """How long this boot has been suspended in all."""
    return (time.clock_gettime_ns(SINCE_BOOT) - time.clock_gettime_ns(AWAKE)) // 1_000_000


class SleepDetector:
    """Tells how long the machine slept since the last look."""

    def __init__(self, measure: Callable[[], int] = asleep_ms) -> None:
        self._measure = measure
        self._seen_ms = measure()

    def slept_ms(self) -> int:
        now = self._measure()
        slept, self._seen_ms = now - self._seen_ms, now
        return slept
