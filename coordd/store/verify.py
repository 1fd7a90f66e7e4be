"""Proves from the receipts alone that the promises were kept, and names the first row that says otherwise."""

import sqlite3
from typing import Final

import msgspec

from coordd.domain.lease import LIVE, TRANSITIONS
from coordd.domain.receipt import GENESIS, Receipt, chain

PROBLEMS_NAMED: Final = 20


class Problem(msgspec.Struct, frozen=True):
    check: str  # integrity, sequence, chain, transition, overlap, generation, state
    seq: int | None
    lease_id: str | None
    message: str


class Report(msgspec.Struct, frozen=True):
    receipts: int
    leases: int
    head: str
    problems: list[Problem]

    @property
    def valid(self) -> bool:
        return not self.problems


def verify(connection: sqlite3.Connection) -> Report:
    """Check the file, the chain, every transition, that no two leases of a repository were ever live at once, that
    generations only grew, and that every lease stands as its last receipt says.

    One pass over the receipts; it keeps one number per lease in memory. Source:
    docs/operations.md#verify
    """
    problems: list[Problem] = []
    for (line,) in connection.execute("pragma integrity_check(10)").fetchall():
        if line != "ok":
            problems.append(Problem("integrity", None, None, str(line)))
    walk = _Walk(problems)
    try:
        for row in connection.execute(_RECEIPTS):
            walk.step(Receipt(*row[:-1]), row[-1])
            if len(problems) >= PROBLEMS_NAMED:
                break
        count = _compare_states(connection, walk)
    except sqlite3.DatabaseError as error:
        problems.append(Problem("integrity", walk.seq or None, None, f"the file cannot be read on: {error}"))
        count = 0
    return Report(walk.seq, count, walk.hash.hex(), problems[:PROBLEMS_NAMED])


# The table as the receipts have it: text, and empty for the state before the first.
LEGAL: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    (before or "", event): after for (before, event), after in TRANSITIONS.items()
}
_RECEIPTS: Final = (
    "select r.seq, r.lease, r.event, r.from_state, r.to_state, r.at_ms, r.generation, r.attempt, r.deadline_ms,"
    " r.reason, r.actor, r.config, r.previous, coalesce(l.lease_id, ''), coalesce(l.repo, ''), r.hash"
    " from receipts r left join leases l on l.row = r.lease order by r.seq"
)


class _Walk:
    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        self.seq = 0
        self.hash = GENESIS
        self._open: dict[int, tuple[str, int]] = {}  # lease -> its state and last receipt, while it is not over
        self._ended: dict[int, int] = {}
        self._live: dict[str, int] = {}  # repository -> lease
        self._generation: dict[str, int] = {}

    def step(self, receipt: Receipt, kept_hash: bytes) -> None:
        if receipt.seq != self.seq + 1:
            self._report("sequence", receipt, f"receipt {self.seq + 1} is missing")
        self.seq = receipt.seq
        expected = chain(self.hash, receipt)
        if expected != kept_hash:
            self._report("chain", receipt, "its hash does not follow from its fields and the receipt before it")
        self.hash = kept_hash
        state, previous = self._open.get(receipt.lease, ("", 0))
        if receipt.lease in self._ended:
            self._report("transition", receipt, "its lease was over already")
        if receipt.from_state != state or receipt.previous != previous:
            self._report("transition", receipt, f"its lease was {state or 'unknown'} since receipt {previous}")
        if receipt.to_state not in LEGAL.get((receipt.from_state, receipt.event), ()):
            self._report(
                "transition", receipt, f"{receipt.event} does not lead from {receipt.from_state} to {receipt.to_state}"
            )
        self._hold(receipt)
        if receipt.to_state in ("completed", "checkpointed", "stopped"):
            self._open.pop(receipt.lease, None)
            self._ended[receipt.lease] = receipt.seq
        else:
            self._open[receipt.lease] = (receipt.to_state, receipt.seq)

    def last_of(self, lease: int) -> int | None:
        """The last receipt of a lease; None when there is none."""
        if lease in self._open:
            return self._open[lease][1]
        return self._ended.get(lease)

    def _hold(self, receipt: Receipt) -> None:
        repo, holder = receipt.repo, self._live.get(receipt.repo)
        if receipt.to_state in LIVE:
            if holder is not None and holder != receipt.lease:
                self._report("overlap", receipt, f"repository {repo} was held by another lease then")
            self._live[repo] = receipt.lease
            if receipt.event == "offer":
                if receipt.generation <= self._generation.get(repo, 0):
                    self._report("generation", receipt, f"generation {receipt.generation} is not new in {repo}")
                self._generation[repo] = receipt.generation
            elif receipt.generation != self._generation.get(repo):
                self._report("generation", receipt, f"generation {receipt.generation} is not the one in force")
        elif holder == receipt.lease:
            del self._live[repo]

    def _report(self, check: str, receipt: Receipt, message: str) -> None:
        self.problems.append(Problem(check, receipt.seq, receipt.lease_id or None, message))


def _compare_states(connection: sqlite3.Connection, walk: _Walk) -> int:
    """Every lease's row against its last receipt, and the other way round. Returns the number of leases."""
    count = 0
    for row in connection.execute(
        "select l.row, l.lease_id, l.state, l.receipt, l.generation, l.attempt, r.lease, r.to_state, r.generation,"
        " r.attempt from current_leases l left join receipts r on r.seq = l.receipt order by l.row"
    ):
        count += 1
        lease, lease_id, state, seq, generation, attempt, of, to_state, then_generation, then_attempt = row
        if of != lease or (state, generation, attempt) != (to_state, then_generation, then_attempt):
            walk.problems.append(
                Problem("state", seq, lease_id, f"it is {state}, and its last receipt says {to_state or 'nothing'}")
            )
        elif walk.last_of(lease) != seq:
            walk.problems.append(Problem("state", seq, lease_id, "it has a later receipt than it knows of"))
        if len(walk.problems) >= PROBLEMS_NAMED:
            break
    return count
