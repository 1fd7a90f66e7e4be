"""Handing out work: one transaction picks a lease, expires what stood in its way, and offers it."""

from collections.abc import Sequence
from typing import Final

import msgspec

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
from coordd.store.transaction import Transaction

LOOKED_AT: Final = 64  # repositories one request without names looks into before it takes the best found


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A lease that may be offered, and the latest generation of its repository."""

    lease: Lease
    generation: int


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
        best: Candidate | None = None
        for name in names:
            found = self.candidate(tx, name)
            if found is not None and (best is None or _rank(found) < _rank(best)):
                best = found
        return None if best is None else self.offer(tx, best, worker=worker, actor=f"worker:{worker}")

    def candidate(self, tx: Transaction, repo: str, transport: str = "pull") -> Candidate | None:
        """What may be offered in a repository now; leaves no hint behind when there is nothing."""
        known = self.repos.get(repo)
        if known is None or known.transport != transport:
            return None
        slot = tx.slots.read(repo) if self._gates.of_repo(repo) is None else None
        if slot is not None and slot.holder is not None:
            slot = tx.slots.read(repo) if self._free(tx, slot.holder) else None
        if slot is not None:
            for lease, wanted in leases.offerable(tx, repo, tx.lease_ms):
                if self._may_run(tx, lease, wanted):
                    return Candidate(lease, slot.generation)
        stamp = self._board.stamp
        tx.later(self._board.settle, repo, stamp)
        return None

    def offer(self, tx: Transaction, candidate: Candidate, *, worker: str, actor: str) -> Offer:
        """Commit an offer; the wake, if any, is sent after the commit."""
        move = moves.offer(candidate.lease, generation=candidate.generation + 1, worker=worker, now_ms=tx.lease_ms)
        after = leases.write(tx, move, actor=actor)
        stamp = self._board.stamp
        tx.later(self._offered, after, stamp)
        left = checkpoints.in_transaction(tx, after.parent) if after.parent is not None else None
        return Offer(after, self.repos[after.repo].path, None if left is None else left[0])

    def _may_run(self, tx: Transaction, lease: Lease, wanted: bool) -> bool:
        """What decided the first offer decides every later one: the source's last word on this very revision."""
        if not self._gates.source_open(lease.source_name):
            return False
        if not wanted:
            tx.later(self._leasing.reconsider, lease)
        return wanted

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


def _rank(candidate: Candidate) -> tuple[int, int]:
    return (candidate.lease.priority, candidate.lease.row)
