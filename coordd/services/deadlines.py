"""The instants at which some lease needs a look: a heap in memory, because an index on them would cost every renewal.

A renewal does not touch the heap. What comes up is read again, and put back when it was not due after all.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

_ROWS: Final = 2**40  # one integer per entry, a third of the memory of a tuple


class Deadlines:
    """Entries are (instant on the lease clock in ms, row of the lease)."""

    def __init__(self, sooner: Callable[[], None] = lambda: None) -> None:
        self._heap: list[int] = []
        self._sooner = sooner  # called when the next instant moved up

    def __len__(self) -> int:
        return len(self._heap)

    def load(self, entries: list[tuple[int, int]]) -> None:
        self._heap = [at_ms * _ROWS + row for at_ms, row in entries]
        heapify(self._heap)

    def push(self, at_ms: int, row: int) -> None:
        entry = at_ms * _ROWS + row
        first = self._heap[0] if self._heap else None
        heappush(self._heap, entry)
        if first is None or entry < first:
            self._sooner()

    def next_ms(self) -> int | None:
        return self._heap[0] // _ROWS if self._heap else None

    def due(self, now_ms: int, most: int) -> list[int]:
        """Take out up to `most` rows whose instant has come."""
        limit = (now_ms + 1) * _ROWS
        rows: list[int] = []
        while self._heap and self._heap[0] < limit and len(rows) < most:
            rows.append(heappop(self._heap) % _ROWS)
        return rows
