"""When to try again."""

from collections.abc import Sequence
from typing import Final

SOURCE_FIRST_S: Final = 15.0
SOURCE_LONGEST_S: Final = 300.0


def retry_delay_ms(attempt: int, delays_s: Sequence[float]) -> int:
    """Milliseconds before the offer that follows attempt number `attempt` (1 for the first); the last delay repeats."""
    return round(delays_s[min(max(attempt, 1), len(delays_s)) - 1] * 1000)


def source_delay_s(failures: int) -> float:
    """Seconds until a source that has failed `failures` times in a row is asked again: 15, doubling to 300."""
    return min(SOURCE_LONGEST_S, SOURCE_FIRST_S * 2.0 ** min(max(failures, 1) - 1, 16))
