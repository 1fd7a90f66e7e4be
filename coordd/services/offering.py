"""Handing out work: one transaction picks a lease, expires what stood in its way, and offers it."""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from coordd.config.settings import Repo
from coordd.domain import moves
from coordd.domain.errors import UnknownRepo
from coordd.domain.lease import Lease
from coordd.domain.offer import Offer
from coordd.services.board import Board
from coordd.services.deadlines import Deadlines
from coordd.services.gates import Gates
from coordd.services.leasing import Leasing
from coordd.store import checkpoints, leases
from coordd.store.leases import First
from coordd.store.transaction import Transaction

LOOKED_AT: Final = 64  # repositories one request without names looks into before it takes the best found


class Offering:
    def __init__(
        self,
        *,
        leasing: Leasing,
        board: Board,
        gates: Gates,
        deadlines: Deadlines,
        repos: dict[str, Repo],
    ) -> None:
        self._leasing = leasing
        self._board = board
        self._gates = gates
        self._deadlines = deadlines
        self.repos = repos  # replaced on reload

    def next(self, tx: Transaction, repos: Sequence[str] | None, worker: str) -> Offer | None:
        """Offer the best lease of the named repositories, or of any, to a worker that asks.

        Raises: UnknownRepo: a named repository is not configured, or is not one that workers ask for.
        """
        if repos is None:
            names: Sequence[str] = self._board.hinted(LOOKED_AT)
        else:
            for name in repos:
                repo = self.repos.get(name)
                if repo is None:
                    raise UnknownRepo(f"{name} is not configured; add it to the configuration", repo=name)
                if repo.transport != "pull":
                    raise UnknownRepo(f"{name} is served by {repo.transport}, not by `next`", repo=name)
            names = repos
        best: First | None = None
        for name in names:
            found = self.candidate(tx, name)
            if found is not None and (best is None or _rank(found) < _rank(best)):
                best = found
        return None if best is None else self.offer(tx, best, worker=worker, actor=f"worker:{worker}")

    def candidate(self, tx: Transaction, repo: str, transport: str = "pull") -> First | None:
        """What may be offered in a repository now; leaves no hint behind when there is nothing."""
        known = self.repos.get(repo)
        if known is None or known.transport != transport:
            return None
        first = None
        if self._gates.of_repo(repo) is None:
            first = leases.first_offer(tx, repo, tx.lease_ms)
            if first is not None and first.holder is not None:
                first = leases.first_offer(tx, repo, tx.lease_ms) if self._free(tx, first.holder) else None
            if first is not None and not self._may_run(tx, first.lease, first.eligible):
                first = self._another(tx, first)
        if first is None:
            stamp = self._board.stamp
            tx.later(lambda: self._board.settle(repo, stamp))
        return first

    def offer(self, tx: Transaction, first: First, *, worker: str, actor: str) -> Offer:
        """Commit an offer; the wake, if any, is sent after the commit."""
        move = moves.offer(
            first.lease, generation=first.generation + 1, worker=worker, now_ms=tx.lease_ms
        )
        after = leases.write(tx, move, actor=actor)
        stamp = self._board.stamp
        tx.later(lambda: self._offered(after, stamp))
        left = checkpoints.in_transaction(tx, after.parent) if after.parent is not None else None
        return Offer(after, self.repos[after.repo].path, None if left is None else left[0])

    def _another(self, tx: Transaction, first: First) -> First | None:
        """The first that may run, when the very first may not."""
        for lease, eligible in leases.offers(tx, first.lease.repo, tx.lease_ms):
            if self._may_run(tx, lease, eligible):
                return replace(first, lease=lease, eligible=True)
        return None

    def _may_run(self, tx: Transaction, lease: Lease, eligible: bool) -> bool:
        """What decided the first offer decides every later one: the source's last word on this very revision."""
        if not self._gates.source_open(lease.source_name):
            return False
        if not eligible:
            tx.later(lambda: self._leasing.reconsider(lease))
        return eligible

    def _free(self, tx: Transaction, holder_row: int) -> bool:
        """Whether the holder of a repository was only waiting to be ended."""
        holder = leases.at_row(tx, holder_row)
        if holder is None or not self._leasing.is_lapsed(tx, holder):
            return False
        self._leasing.expire_lapsed(tx, holder)
        return True

    def _offered(self, lease: Lease, stamp: int) -> None:
        self._deadlines.push(lease.deadline_ms, lease.row)
        self._board.settle(lease.repo, stamp)


def _rank(first: First) -> tuple[int, int]:
    return (first.lease.priority, first.lease.row)
