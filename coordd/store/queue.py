"""The pending leases of each repository in the order in which they are to be offered: a mirror in memory.

An index that keeps this order on disk costs a page for every repository that moves, half of all pages written. Entries
may be stale, and are looked at when they come up; none is ever missing, because whatever makes a lease pending adds
one once it is committed.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Final

_ROWS: Final = 2**40  # one integer per entry: a third of the memory of a tuple
_FIRST_PRIORITY: Final = -1  # of a lease that continues a checkpoint


class PendingQueue:
    """Entries are (priority, row of the lease)."""

    def __init__(self) -> None:
        # Per repository in order, each entry negated, so that the first stands at the end, where taking it is cheap.
        self._queues: dict[str, list[int]] = {}

    def load(self, entries: Iterable[tuple[str, int, int]]) -> None:
        """(repository, priority, row) of every pending lease, after a start."""
        queues: dict[str, list[int]] = {}
        for repo, priority, row in entries:
            queues.setdefault(repo, []).append(_entry(priority, row))
        for queue in queues.values():
            queue.sort()
        self._queues = queues

    def add(self, repo: str, priority: int, row: int) -> None:
        insort(self._queues.setdefault(repo, []), _entry(priority, row))

    def page(self, repo: str, skip: int, most: int) -> list[tuple[int, int]]:
        """(priority, row) of some entries, in order, after the first `skip`; they stay."""
        queue = self._queues.get(repo)
        if not queue:
            return []
        end = len(queue) - skip
        return [_parts(entry) for entry in reversed(queue[max(0, end - most) : max(0, end)])]

    def discard(self, repo: str, priority: int, row: int) -> None:
        """Take out an entry, if it is there; cheapest for the first."""
        queue = self._queues.get(repo)
        if not queue:
            return
        entry = _entry(priority, row)
        if queue[-1] == entry:
            queue.pop()
        else:
            at = bisect_left(queue, entry)
            if at < len(queue) and queue[at] == entry:
                del queue[at]
        if not queue:
            del self._queues[repo]


def _entry(priority: int, row: int) -> int:
    return -((priority - _FIRST_PRIORITY) * _ROWS + row)


def _parts(entry: int) -> tuple[int, int]:
    priority, row = divmod(-entry, _ROWS)
    return priority + _FIRST_PRIORITY, row
