"""Who waits for work, and where there may be some.

Everything here is a hint in memory: what is offered is decided in the transaction that offers it. A hint too many
costs one look; none is ever missing, because every commit that makes a lease offerable or frees a repository leaves
one.
"""

from collections.abc import Callable, Iterable
from itertools import count

import trio


class Seeker:
    """A worker that waits. `repos` is None for any repository."""

    __slots__ = ("_event", "place", "repos")

    def __init__(self, repos: frozenset[str] | None, place: int) -> None:
        self.repos = repos
        self.place = place  # in the queue; the lowest is served first
        self._event = trio.Event()

    def wake(self) -> None:
        self._event.set()

    @property
    def is_woken(self) -> bool:
        return self._event.is_set()

    async def woken(self) -> None:
        """Wait for a hint, and be ready for the next."""
        await self._event.wait()
        self._event = trio.Event()


class Board:
    """One hint wakes one waiting worker, the one that has waited longest, so that a freed repository does not stampede
    a thousand.
    """

    def __init__(self) -> None:
        self._anywhere: dict[Seeker, None] = {}  # in the order of their places
        self._in_repo: dict[str, dict[Seeker, None]] = {}
        self._hints: dict[str, int] = {}
        self._count = count(1).__next__
        self.stamp = 0  # grows with every hint
        self.pushed: Callable[[str], None] = lambda repo: None  # for transports that are pushed to

    def waiting(self) -> int:
        """How many workers wait."""
        return len({*self._anywhere, *(seeker for queue in self._in_repo.values() for seeker in queue)})

    def hint(self, repo: str) -> None:
        """Something may be offerable in `repo`."""
        self.stamp += 1
        self._hints[repo] = self.stamp
        self.pushed(repo)
        if not self._anywhere and not self._in_repo:
            return
        first = [next(iter(queue)) for queue in (self._anywhere, self._in_repo.get(repo)) if queue]
        if first:
            seeker = min(first, key=lambda seeker: seeker.place)
            self._leave_queues(seeker)
            seeker.place = self._count()
            self._join_queues(seeker)
            seeker.wake()

    def hint_all(self, repos: Iterable[str]) -> None:
        for repo in repos:
            self.hint(repo)

    def settle(self, repo: str, stamp: int) -> None:
        """Nothing was offerable in `repo` when `stamp` was read; a hint given since then stays."""
        if self._hints.get(repo, stamp + 1) <= stamp:
            del self._hints[repo]

    def hinted(self, most: int) -> list[str]:
        """Repositories where there may be something, the longest hinted first."""
        return [repo for repo, _ in zip(self._hints, range(most), strict=False)]

    def join(self, repos: frozenset[str] | None) -> Seeker:
        """Begin to wait."""
        seeker = Seeker(repos, self._count())
        self._join_queues(seeker)
        return seeker

    def leave(self, seeker: Seeker) -> None:
        """Stop waiting. A hint that this seeker was woken for, and did not follow, goes to the next one."""
        self._leave_queues(seeker)
        if seeker.is_woken:
            self.hint_all([repo for repo in self._hints if seeker.repos is None or repo in seeker.repos])

    def _join_queues(self, seeker: Seeker) -> None:
        if seeker.repos is None:
            self._anywhere[seeker] = None
        for repo in seeker.repos or ():
            self._in_repo.setdefault(repo, {})[seeker] = None

    def _leave_queues(self, seeker: Seeker) -> None:
        self._anywhere.pop(seeker, None)
        for repo in seeker.repos or ():
            queue = self._in_repo.get(repo)
            if queue is not None:
                queue.pop(seeker, None)
                if not queue:
                    del self._in_repo[repo]
