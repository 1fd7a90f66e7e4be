"""The pending leases of each repository in the order in which they are to be offered: a mirror in memory.

An index that keeps this order on disk costs a page for every repository that moves, half of all pages written. Entries
may be stale, and are looked at when they come up; none is ever missing, because whatever makes a lease pending adds
one once it is committed.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final

_ROWS: Final = 2**40  # one integer per entry: a third of the memory of a tuple
_FIRST_PRIORITY: Final = -1  # of a lease that continues a checkpoint


class PendingQueue:
    """Entries are (priority, row of the lease)."""

    def __init__(self) -> None:
        self._heaps: dict[str, list[int]] = {}

    def load(self, entries: Iterable[tuple[str, int, int]]) -> None:
        """(repository, priority, row) of every pending lease, after a start."""
        heaps: dict[str, list[int]] = {}
        for repo, priority, row in entries:
            heaps.setdefault(repo, []).append(_entry(priority, row))
        for heap in heaps.values():
            heapify(heap)
        self._heaps = heaps

    def add(self, repo: str, priority: int, row: int) -> None:
        heappush(self._heaps.setdefault(repo, []), _entry(priority, row))

    def first(self, repo: str) -> tuple[int, int] | None:
        """(priority, row) of the entry that comes first; it stays."""
        heap = self._heaps.get(repo)
        return _parts(heap[0]) if heap else None

    def all(self, repo: str) -> list[tuple[int, int]]:
        """Every entry of a repository, in order."""
        return [_parts(entry) for entry in sorted(self._heaps.get(repo, ()))]

    def discard(self, repo: str, priority: int, row: int) -> None:
        """Take out an entry; cheap for the first."""
        heap = self._heaps.get(repo)
        if not heap:
            return
        entry = _entry(priority, row)
        if heap[0] == entry:
            heappop(heap)
        elif entry in heap:
            heap.remove(entry)
            heapify(heap)
        if not heap:
            del self._heaps[repo]

    def repos(self) -> list[str]:
        return list(self._heaps)


def _entry(priority: int, row: int) -> int:
    return (priority - _FIRST_PRIORITY) * _ROWS + row


def _parts(entry: int) -> tuple[int, int]:
    priority, row = divmod(entry, _ROWS)
    return priority + _FIRST_PRIORITY, row
