"""Leases in SQLite: read, write with the receipt, and find the next one to offer. Only the writer uses this file.

What a lease is about stands in `leases`. While it is live, what changes about it stands in the row of its repository,
which has room for one holder: renewals then touch a few pages, not one per lease. The view `current_leases` puts the
two together. Source: docs/architecture.md#the-store
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import astuple, replace

from coordd.domain.errors import UnknownLease, WriteConflict
from coordd.domain.lease import LIVE, PASSING_STOPS, STATES, TERMINAL, Lease, LeaseState, Move
from coordd.domain.receipt import Receipt
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
_RENEW: Final = "update repositories set deadline_ms = ?, receipt = ? where name = ? and receipt = ?"
_CHANGE: Final = (
    "update repositories set state = ?, deadline_ms = ?, receipt = ?, worker = ?, anchor = ?"
    " where name = ? and receipt = ?"
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
        if state not in LIVE:
            cursor = tx.execute(_FREE[state], (before.repo, before.receipt))
        elif state == before.state and after.anchor == before.anchor:
            cursor = tx.execute(_RENEW, (after.deadline_ms, seq, before.repo, before.receipt))
        else:
            cursor = tx.execute(
                _CHANGE, (state, after.deadline_ms, seq, after.worker, after.anchor, before.repo, before.receipt)
            )
    elif state in LIVE:
        cursor = tx.execute(
            _HOLD,
            (after.row, state, after.generation, after.attempt, after.deadline_ms)
            + (seq, after.worker, after.anchor, after.repo),
        )
    else:
        cursor = tx.execute(_MOVE, (*_ended(after, seq), before.receipt))
    if cursor.rowcount != 1:
        raise WriteConflict(f"lease {before.lease_id} changed meanwhile; ask again", lease_id=before.lease_id)
    if state not in LIVE:
        if before.state in LIVE:
            tx.execute(_END, _ended(after, seq))
        elif state in TERMINAL:
            tx.execute(_COUNT[state], (after.repo,))
    after = replace(after, receipt=seq)
    _receipt(tx, after, move.event, before.state, actor, before.receipt)
    tx.remember(after)
    return after


def insert(tx: Transaction, lease: Lease, *, store: str, actor: str) -> Lease:
    """Insert a new lease, `pending` or `waiting`, with its first receipt; returns it with its row and id."""
    row = tx.execute("select coalesce(max(row), 0) + 1 from leases").fetchone()[0]
    lease = replace(lease, row=row, lease_id=f"{store}-{row}", receipt=tx.seq + 1)
    tx.execute(_INSERT, (*astuple(lease), phase_of(lease.state, lease.reason)))
    _receipt(tx, lease, "accept", "", actor, 0)
    tx.remember(lease)
    return lease


# A pending lease is eligible: what its source says and what becomes of it are one transaction, see services/intake.py.
# A retry may have been put off while something changed, so it is compared with the source's last word.
_ELIGIBLE: Final = (
    "case phase when 1 then 1 else exists (select 1 from items i where i.source_name = leases.source_name"
    " and i.item_id = leases.item_id and i.revision = leases.item_revision and i.outcome = 'eligible') end"
)
# A due retry before new work, then by priority, then by age; and who holds the repository. One statement, because
# handing out work is what a worker waits for.
_FIRST: Final = (
    f"select {', '.join(f'leases.{name.strip()}' for name in COLUMNS.split(','))}, {_ELIGIBLE}, r.lease, r.generation"
    " from repositories r join leases on leases.row = coalesce("
    "(select row from leases where repo = ?1 and phase = 3 and deadline_ms <= ?2 order by deadline_ms, row limit 1),"
    " (select row from leases where repo = ?1 and phase = 1 order by priority, row limit 1)) where r.name = ?1"
)
_ALL: Final = (
    f"select {COLUMNS}, {_ELIGIBLE} from leases where row in (select row from leases where repo = ?1 and phase = 3"
    " and deadline_ms <= ?2 union all select row from leases where repo = ?1 and phase = 1)"
    " order by phase desc, priority, row"
)


class First(msgspec.Struct, frozen=True, gc=False):
    """The lease that comes first in a repository."""

    lease: Lease
    eligible: bool  # its source's last complete snapshot shows this very revision as eligible
    holder: int | None  # row of the lease that holds the repository
    generation: int  # the repository's latest, as long as nobody holds it


def first_offer(tx: Transaction, repo: str, now_ms: int) -> First | None:
    row = tx.execute(_FIRST, (repo, now_ms)).fetchone()
    return None if row is None else First(from_row(row[:-3]), row[-3] == 1, row[-2], row[-1])


def offers(tx: Transaction, repo: str, now_ms: int) -> list[tuple[Lease, bool]]:
    """Every lease that might be offered in a repository that nobody holds, in order, and whether it is eligible."""
    return [(from_row(row[:-1]), row[-1] == 1) for row in tx.execute(_ALL, (repo, now_ms)).fetchall()]


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
    return after


def tie(tx: Transaction, lease: Lease, anchor: str) -> Lease:
    """Note what a live lease is anchored to, when that is known only after the offer. No transition."""
    after = replace(lease, anchor=anchor)
    tx.execute("update repositories set anchor = ? where name = ? and lease = ?", (anchor, lease.repo, lease.row))
    tx.remember(after)
    return after


def put_aside(tx: Transaction, lease: Lease) -> None:
    """A stopped lease has been looked at and does not ask for attention any more. No transition."""
    tx.execute("update leases set phase = 6 where row = ? and phase = 5", (lease.row,))


def clamp_retries(tx: Transaction, latest_ms: int) -> None:
    """No retry waits beyond an instant: after a restart of the machine, for whose clock nobody vouches."""
    tx.execute("update leases set deadline_ms = min(deadline_ms, ?) where phase = 3", (latest_ms,))
    tx.leases.clear()


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
        Receipt(
            lease.receipt,
            lease.row,
            lease.lease_id,
            lease.repo,
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
        )
    )
