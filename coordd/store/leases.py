"""Leases in SQLite: read, write with the receipt, and find the next one to offer. Only the writer uses this file.

What a lease is about stands in `leases`. While it is live, what changes about it stands in the row of its repository,
which has room for one holder: renewals then touch a few pages, not one per lease. The view `current_leases` puts the
two together. Source: docs/architecture.md#the-store
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec.structs import astuple, replace

from coordd.domain.errors import UnknownLease, WriteConflict
from coordd.domain.lease import LIVE, PASSING_STOPS, TERMINAL, Lease, LeaseState, Move
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

_END: Final = (
    "update leases set state = ?, phase = ?, generation = ?, attempt = ?, deadline_ms = ?, reason = ?, receipt = ?,"
    " worker = ?, anchor = ? where row = ?"
)
# The receipt is the row's version: it changes with every transition, so to compare it is to compare everything.
_MOVE: Final = f"{_END} and receipt = ?"
_COUNT: Final[dict[str, str]] = {
    state: f"update repositories set {state} = {state} + 1 where name = ?" for state in sorted(TERMINAL)
}


def from_row(values: Sequence[Any]) -> Lease:
    return Lease(*values)  # the columns stand in the order of the fields


def row_of(lease_id: str) -> int:
    """The row that a lease id names; 0, which no lease has, for anything that is no lease id."""
    try:
        row = int(lease_id[lease_id.rfind("-") + 1 :])
    except ValueError:
        return 0
    return row if 0 < row < 2**62 else 0


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
    was, state = before.state, after.state
    if was in LIVE and state in LIVE:
        done = tx.slots.change(
            before.repo,
            before.receipt,
            state=state,
            deadline_ms=after.deadline_ms,
            receipt=seq,
            worker=after.worker,
            anchor=after.anchor,
        )
    elif was in LIVE:
        done = tx.slots.free(before.repo, before.receipt, generation=after.generation, state=state)
        tx.at_last(_END, _ended(after, seq))
        if state == "retry_wait":
            tx.retrying.add(after.repo)
    elif state in LIVE:
        done = tx.slots.hold(
            after.repo,
            after.row,
            state=state,
            generation=after.generation,
            attempt=after.attempt,
            deadline_ms=after.deadline_ms,
            receipt=seq,
            worker=after.worker,
            anchor=after.anchor,
        )
        if was == "pending":
            tx.later(tx.pending.discard, before.repo, before.priority, before.row)
    else:
        done = tx.execute(_MOVE, (*_ended(after, seq), before.receipt)).rowcount == 1
        if state == "pending":
            tx.later(tx.pending.add, after.repo, after.priority, after.row)
        elif state in TERMINAL:
            tx.execute(_COUNT[state], (after.repo,))
    if not done:
        raise WriteConflict(f"lease {before.lease_id} changed meanwhile; ask again", lease_id=before.lease_id)
    after = replace(after, receipt=seq)
    _receipt(tx, after, move.event, was, actor, before.receipt)
    tx.remember(after)
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
_SELECT_WAITING: Final = f"select {COLUMNS} from leases"  # of a repository that nobody holds
AHEAD: Final = 8


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
    seen = 0
    while entries := tx.pending.page(repo, seen, AHEAD):  # the first is the one as a rule; the next are wanted soon
        seen += len(entries)
        _read_ahead(tx, entries)
        for priority, row in entries:
            known = tx.leases.get(row)
            if known is None or known.state != "pending" or known.priority != priority:
                tx.later(tx.pending.discard, repo, priority, row)
            else:
                yield known, True


def _read_ahead(tx: Transaction, entries: list[tuple[int, int]]) -> None:
    """Have the leases of the first entries in memory, unless the very first is: many in one statement are cheaper."""
    if not entries or entries[0][1] in tx.leases:
        return
    rows = [row for _, row in entries if row not in tx.leases]
    found = tx.execute(f"{_SELECT_WAITING} where row in ({', '.join('?' * len(rows))})", rows).fetchall()
    for values in found:
        tx.leases[values[0]] = from_row(values)


def holder(tx: Transaction, repo: str) -> Lease | None:
    """The live lease of a repository, expired or not."""
    slot = tx.slots.read(repo)
    return None if slot is None or slot.holder is None else at_row(tx, slot.holder)


def live(tx: Transaction, *, anchored: bool = False) -> list[Lease]:
    """Every live lease, or those that are tied to something."""
    tx.slots.flush()
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
        tx.execute(
            "update leases set reason = ?, priority = ? where row = ?", (after.reason, after.priority, lease.row)
        )
        tx.remember(after)
        if after.state == "pending" and after.priority != lease.priority:
            tx.later(tx.pending.add, after.repo, after.priority, after.row)
    return after


def tie(tx: Transaction, lease: Lease, anchor: str) -> Lease:
    """Note what a live lease is anchored to, when that is known only after the offer. No transition."""
    after = replace(lease, anchor=anchor)
    tx.slots.change(
        lease.repo,
        lease.receipt,
        state=lease.state,
        deadline_ms=lease.deadline_ms,
        receipt=lease.receipt,
        worker=lease.worker,
        anchor=anchor,
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
