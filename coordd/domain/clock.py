"""Two clocks, never mixed: one for deciding, one for people."""

from typing import Protocol


class Clock(Protocol):
    def lease_ms(self) -> int:
        """Milliseconds on the lease clock: only grows, stands still while the machine sleeps, and no step of the
        wall clock moves it. Every deadline is on it.
        """
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970 in UTC, as the machine believes. For receipts and for showing."""
        ...
