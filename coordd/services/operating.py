"""What an operator does: pause and resume, retry and cancel, stop and reload."""

from collections.abc import Callable

from coordd.domain.errors import UnknownRepo
from coordd.services.board import Board
from coordd.services.gates import Gates
from coordd.services.leasing import Held, Leasing
from coordd.store import leases, meta, repositories
from coordd.store.transaction import Transaction


class Operating:
    def __init__(
        self,
        *,
        leasing: Leasing,
        board: Board,
        gates: Gates,
    ) -> None:
        self._leasing = leasing
        self._board = board
        self._gates = gates
        # Set by app.py: begin to drain, and why; read the configuration again and say what changed.
        self.stop: Callable[[str], None]
        self.reload: Callable[[], list[str]]

    def pause(self, tx: Transaction, repo: str | None, actor: str) -> None:
        """Offer nothing more, in one repository or in all; what is being worked on goes on. It outlives a restart.

        Raises: UnknownRepo.
        """
        if repo is None:
            meta.put(tx, "paused", actor)
        else:
            self._check(repo)
            repositories.set_paused(tx, repo, True)
        tx.later(self._set_paused, repo, True)

    def resume(self, tx: Transaction, repo: str | None, actor: str) -> None:
        """Undo `pause` of the same extent. Raises: UnknownRepo."""
        if repo is None:
            meta.remove(tx, "paused")
        else:
            self._check(repo)
            repositories.set_paused(tx, repo, False)
        everywhere = repo is None
        still = self._gates.paused_repos if everywhere else {*self._gates.selected} if self._gates.paused else set()
        for name in sorted(self._gates.selected) if everywhere else [repo]:
            if name is None or name in still:
                continue
            for lease in leases.waiting_for(tx, name, "paused"):
                self._leasing.make_ready(tx, lease, actor)
        tx.later(self._set_paused, repo, False)

    def retry(self, tx: Transaction, lease_id: str, actor: str) -> Held:
        """See `Leasing.retry`."""
        return self._leasing.retry(tx, lease_id, actor)

    def cancel(self, tx: Transaction, lease_id: str, reason: str, actor: str) -> Held:
        """See `Leasing.cancel`."""
        return self._leasing.cancel(tx, lease_id, reason, actor)

    def load_pauses(self, tx: Transaction) -> None:
        """After a start."""
        self._gates.paused = meta.get(tx.connection, "paused") is not None
        self._gates.paused_repos = {
            tally.name for tally in repositories.tallies(tx.connection).values() if tally.paused
        }

    def _check(self, repo: str) -> None:
        if repo not in self._gates.selected:
            raise UnknownRepo(f"{repo} is not configured; see `coordctl status` for those that are", repo=repo)

    def _set_paused(self, repo: str | None, paused: bool) -> None:
        if repo is None:
            self._gates.paused = paused
        elif paused:
            self._gates.paused_repos.add(repo)
        else:
            self._gates.paused_repos.discard(repo)
        if not paused:
            self._board.hint_all(self._gates.selected if repo is None else [repo])
