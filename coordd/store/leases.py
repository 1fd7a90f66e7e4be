"""Leases in SQLite: read, write with the receipt, and find the next one to offer. Only the writer uses this file.

What a lease is about stands in `leases`. While it is live, what changes about it stands in the row of its repository,
which has room for one holder: renewals then touch a few pages, not one per lease. The view `current_leases` puts the
two together. Source: docs/architecture.md#the-store
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import astuple, replace

from coordd.domain.errors import UnknownLease, WriteConflict
from coordd.domain.lease import LIVE, PASSING_STOPS, STATES, TERMINAL, Lease, LeaseState, Move
from coordd.store.transaction import Transaction

PENDING, WAITING, RETRY, ATTENTION, OVER = 1, 2, 3, 5, 6  # 4: live, by the view

_PHASES: Final[dict[str, int]] = {
    "pending": PENDING,
    "waiting": WAITING,
    "retry_wait": RETRY,
    "checkpointed": OVER,
    "completed": OVER,
    "stopped": ATTENTION,
}

COLUMNS: Final = (
    "row, lease_id, repo, state, generation, attempt, attempts_allowed, ttl_ms, deadline_ms, reason, receipt, source,"
    ' source_name, source_id, source_revision, "trigger", item_id, item_revision, item_digest, parent, priority,'
    " config, accepted_at_ms, worker, anchor"
)
_SELECT: Final = f"select {COLUMNS} from current_leases"
_INSERT: Final = f"insert into leases ({COLUMNS}, phase) values ({', '.join('?' * (len(COLUMNS.split(',')) + 1))})"

# The receipt is the row's version: it changes with every transition, so to compare it is to compare everything.
_HOLD: Final = (
    "update repositories set lease = ?, state = ?, generation = ?, attempt = ?, deadline_ms = ?, receipt = ?,"
    " worker = ?, anchor = ? where name = ? and lease is null"
)
_FREE: Final[dict[str, str]] = {
    state: "update repositories set lease = null, state = null, attempt = null, deadline_ms = null, receipt = null,"
    " worker = '', anchor = ''"
    + (f", {state} = {state} + 1" if state in TERMINAL else "")
    + " where name = ? and receipt = ?"
    for state in STATES
}
_COUNT: Final[dict[str, str]] = {
    state: f"update repositories set {state} = {state} + 1 where name = ?" for state in sorted(TERMINAL)
}
_END: Final = (
    "update leases set state = ?, phase = ?, generation = ?, attempt = ?, deadline_ms = ?, reason = ?, receipt = ?,"
    " worker = ?, anchor = ? where row = ?"
)
_MOVE: Final = f"{_END} and receipt = ?"


def from_row(values: Sequence[Any]) -> Lease:
    return Lease(*values)  # the columns stand in the order of the fields


def row_of(lease_id: str) -> int:
    """The row that a lease id names; 0, which no lease has, for anything that is no lease id."""
    digits = lease_id.rpartition("-")[2]
    return int(digits) if digits.isdecimal() and digits.isascii() and len(digits) < 18 else 0


def get(tx: Transaction, lease_id: str) -> Lease:
    """Read a lease. Raises UnknownLease."""
    lease = at_row(tx, row_of(lease_id))
    if lease is None or lease.lease_id != lease_id:
        raise UnknownLease(f"there is no lease {lease_id[:64]}; see `coordctl leases`")
    return lease


def at_row(tx: Transaction, row: int) -> Lease | None:
    lease = tx.leases.get(row)
    if lease is None:
        values = tx.execute(f"{_SELECT} where row = ?", (row,)).fetchone()
        if values is None:
            return None
        lease = tx.leases[row] = from_row(values)
    return lease


def write(tx: Transaction, move: Move, *, actor: str) -> Lease:
    """Write the outcome of a move and its receipt, if the row still reads as the move assumed.

    Raises: WriteConflict.
    """
    before, after = move.before, move.after
    assert before is not None
    seq = tx.seq + 1
    state = after.state
    if before.state in LIVE:
        if state in LIVE:
            change = (state, after.deadline_ms, seq, after.worker, after.anchor, before.repo, before.receipt)
            done = tx.change_held(change)
        else:
            version = tx.version_on_disk(before.repo, before.receipt)
            done = tx.execute(_FREE[state], (before.repo, version)).rowcount == 1
    elif state in LIVE:
        slot = (after.row, state, after.generation, after.attempt, after.deadline_ms, seq, after.worker, after.anchor)
        done = tx.execute(_HOLD, (*slot, after.repo)).rowcount == 1
    else:
        done = tx.execute(_MOVE, (*_ended(after, seq), before.receipt)).rowcount == 1
    if not done:
        raise WriteConflict(f"lease {before.lease_id} changed meanwhile; ask again", lease_id=before.lease_id)
    if state not in LIVE:
        if before.state in LIVE:
            tx.execute(_END, _ended(after, seq))
        elif state in TERMINAL:
            tx.execute(_COUNT[state], (after.repo,))
    after = replace(after, receipt=seq)
    _receipt(tx, after, move.event, before.state, actor, before.receipt)
    tx.remember(after)
    _mirror(tx, before, after)
    return after


def insert(tx: Transaction, lease: Lease, *, store: str, actor: str) -> Lease:
    """Insert a new lease, `pending` or `waiting`, with its first receipt; returns it with its row and id."""
    row = tx.execute("select coalesce(max(row), 0) + 1 from leases").fetchone()[0]
    lease = replace(lease, row=row, lease_id=f"{store}-{row}", receipt=tx.seq + 1)
    tx.execute(_INSERT, (*astuple(lease), phase_of(lease.state, lease.reason)))
    _receipt(tx, lease, "accept", "", actor, 0)
    tx.remember(lease)
    if lease.state == "pending":
        tx.later(tx.pending.add, lease.repo, lease.priority, lease.row)
    return lease


# What decided the first offer decides every later one: a retry may have been put off while something changed, so it is
# compared with the source's last word. A pending lease need not be: what its source says and what becomes of it are one
# transaction, see services/intake.py.
_DUE: Final = (
    f"{_SELECT} where row in (select row from leases where repo = ?1 and phase = 3 and deadline_ms <= ?2)"
    " and phase = 3 order by deadline_ms, row"
)
_STILL_WANTED: Final = (
    "select 1 from items where source_name = ? and item_id = ? and revision = ? and outcome = 'eligible'"
)
_SELECT_WAITING: Final = f"select {COLUMNS} from leases where row = ?"  # of a repository that nobody holds
_SLOT: Final = "select lease, generation from repositories where name = ?"


class Slot(msgspec.Struct, frozen=True, gc=False):
    """A repository's room for one holder."""

    holder: int | None  # row of the lease that holds it
    generation: int  # the latest, as long as nobody holds it


def slot(tx: Transaction, repo: str) -> Slot | None:
    """None for a repository that has never had work."""
    generation = tx.free.get(repo)
    if generation is not None:
        return Slot(None, generation)
    row = tx.execute(_SLOT, (repo,)).fetchone()
    return None if row is None else Slot(*row)


def offerable(tx: Transaction, repo: str, now_ms: int) -> Iterator[tuple[Lease, bool]]:
    """The leases that may be offered in a repository that nobody holds: due retries before new work, then by priority,
    then by age; and whether the source still wants this very revision.
    """
    if repo in tx.retrying:
        rows = tx.execute(_DUE, (repo, now_ms)).fetchall()
        for row in rows:
            lease = from_row(row)
            wanted = tx.execute(_STILL_WANTED, (lease.source_name, lease.item_id, lease.item_revision)).fetchone()
            yield lease, wanted is not None
    first = tx.pending.first(repo)
    if first is None:
        return
    lease = _still_pending(tx, repo, *first)
    if lease is not None:
        yield lease, True
    for priority, row in tx.pending.all(repo):
        if (priority, row) != first:
            lease = _still_pending(tx, repo, priority, row)
            if lease is not None:
                yield lease, True


def _still_pending(tx: Transaction, repo: str, priority: int, row: int) -> Lease | None:
    lease = tx.leases.get(row)
    if lease is None:
        values = tx.execute(_SELECT_WAITING, (row,)).fetchone()
        lease = None if values is None else from_row(values)
    if lease is not None and lease.state == "pending" and lease.priority == priority:
        return lease
    tx.later(tx.pending.discard, repo, priority, row)
    return None


def holder(tx: Transaction, repo: str) -> Lease | None:
    """The live lease of a repository, expired or not."""
    found = tx.execute("select lease from repositories where name = ?", (repo,)).fetchone()
    return None if found is None or found[0] is None else at_row(tx, found[0])


def live(tx: Transaction, *, anchored: bool = False) -> list[Lease]:
    """Every live lease, or those that are tied to something."""
    anchored_too = " and anchor != ''" if anchored else ""
    rows = tx.execute(f"select lease from repositories where lease is not null{anchored_too}").fetchall()
    return [lease for (row,) in rows if (lease := at_row(tx, row)) is not None]


def waiting_for(tx: Transaction, repo: str, reason: str) -> list[Lease]:
    """Leases of a repository that wait for `reason`, in the order in which they came."""
    rows = tx.execute(
        "select row from leases where repo = ? and phase = 2 and reason = ? order by row", (repo, reason)
    ).fetchall()
    return [lease for (row,) in rows if (lease := at_row(tx, row)) is not None]


def phase_of(state: LeaseState, reason: str) -> int:
    if state == "stopped" and reason in PASSING_STOPS:
        return OVER
    return _PHASES[state]


def note(tx: Transaction, lease: Lease, *, reason: str = "", priority: int | None = None) -> Lease:
    """Keep what is shown of a lease that is not live true: why it waits, how soon it is wanted. No transition."""
    after = replace(lease, reason=reason or lease.reason, priority=lease.priority if priority is None else priority)
    if after != lease:
        tx.execute("update leases set reason = ?, priority = ? where row = ?", (after.reason, after.priority, lease.row))
        tx.remember(after)
        if after.state == "pending" and after.priority != lease.priority:
            tx.later(tx.pending.add, after.repo, after.priority, after.row)
    return after


def tie(tx: Transaction, lease: Lease, anchor: str) -> Lease:
    """Note what a live lease is anchored to, when that is known only after the offer. No transition."""
    after = replace(lease, anchor=anchor)
    tx.change_held(
        (lease.state, lease.deadline_ms, lease.receipt, lease.worker, anchor, lease.repo, lease.receipt)
    )
    tx.remember(after)
    return after


def put_aside(tx: Transaction, lease: Lease) -> None:
    """A stopped lease has been looked at and does not ask for attention any more. No transition."""
    tx.execute("update leases set phase = 6 where row = ? and phase = 5", (lease.row,))


def clamp_retries(tx: Transaction, latest_ms: int) -> None:
    """No retry waits beyond an instant: after a restart of the machine, for whose clock nobody vouches."""
    tx.execute("update leases set deadline_ms = min(deadline_ms, ?) where phase = 3", (latest_ms,))
    tx.leases.clear()


def _mirror(tx: Transaction, before: Lease, after: Lease) -> None:
    """Keep what stands in memory about repositories and their queues true."""
    state = after.state
    if state in LIVE:
        if before.state not in LIVE:
            tx.free.pop(after.repo, None)
            if before.state == "pending":
                tx.later(tx.pending.discard, before.repo, before.priority, before.row)
        return
    if before.state in LIVE:
        tx.free[after.repo] = after.generation
    if state == "pending":
        tx.later(tx.pending.add, after.repo, after.priority, after.row)
    elif state == "retry_wait":
        tx.retrying.add(after.repo)


def load_mirrors(tx: Transaction) -> None:
    """After a start."""
    tx.pending.load(tx.execute("select repo, priority, row from leases where phase = 1").fetchall())
    tx.retrying.update(row[0] for row in tx.execute("select distinct repo from leases where phase = 3").fetchall())


def _ended(lease: Lease, seq: int) -> tuple[Any, ...]:
    return (
        lease.state,
        phase_of(lease.state, lease.reason),
        lease.generation,
        lease.attempt,
        lease.deadline_ms,
        lease.reason,
        seq,
        lease.worker,
        lease.anchor,
        lease.row,
    )


def _receipt(tx: Transaction, lease: Lease, event: str, from_state: str, actor: str, previous: int) -> None:
    tx.add_receipt(
        (
            lease.receipt,
            lease.row,
            event,
            from_state,
            lease.state,
            tx.wall_ms,
            lease.generation,
            lease.attempt,
            lease.deadline_ms,
            lease.reason,
            actor,
            lease.config,
            previous,
            lease.lease_id,
            lease.repo,
        )
    )
