"""Queries for showing: on a reader connection, over what is committed."""

import sqlite3
from typing import Final

from coordd.domain.errors import UnknownLease
from coordd.domain.lease import Lease
from coordd.domain.receipt import Receipt
from coordd.store.leases import COLUMNS, from_row, row_of

LeaseRow = tuple[Lease, int, str | None]

_LOOK: Final = (
    "select "
    + ", ".join(f"l.{name.strip()}" for name in COLUMNS.split(","))
    + ", r.at_ms, p.lease_id from current_leases l join receipts r on r.seq = l.receipt"
    " left join leases p on p.row = l.parent"
)


def at_row(connection: sqlite3.Connection, row: int) -> LeaseRow | None:
    return next(iter(_leases(connection, "where l.row = ?", (row,))), None)


def live(connection: sqlite3.Connection) -> list[LeaseRow]:
    return _leases(connection, "where l.row in (select lease from repositories where lease is not null)")


def stopped(connection: sqlite3.Connection, limit: int) -> list[LeaseRow]:
    """Stopped leases that someone has to look at, the latest first."""
    return _leases(
        connection,
        "where l.row in (select row from leases where phase = 5 order by row desc limit ?) order by l.row desc",
        (limit,),
    )


def find(connection: sqlite3.Connection, lease_id: str) -> Lease:
    """Raises UnknownLease."""
    found = at_row(connection, row_of(lease_id))
    if found is None or found[0].lease_id != lease_id:
        raise UnknownLease(f"there is no lease {lease_id[:64]}; see `coordctl leases`")
    return found[0]


def page(
    connection: sqlite3.Connection,
    *,
    states: list[str] | None,
    repo: str | None,
    source: str | None,
    after: int,
    limit: int,
) -> list[LeaseRow]:
    """Leases with a greater row, in the order of their rows."""
    conditions = ["l.row > ?"]
    wanted: list[object] = [after]
    if states is not None:
        conditions.append(f"l.state in ({', '.join('?' * len(states))})")
        wanted.extend(states)
    for column, value in (("repo", repo), ("source_name", source)):
        if value is not None:
            conditions.append(f"l.{column} = ?")
            wanted.append(value)
    where = f"where {' and '.join(conditions)} order by l.row limit ?"
    if states is None:
        # History is long and what is open is little: gather that from its indexes first.
        where = f"where l.row in ({_OPEN}) and {' and '.join(conditions)} order by l.row limit ?"
    return _leases(connection, where, (*wanted, limit))


_OPEN: Final = " union ".join(
    [
        "select lease from repositories where lease is not null",
        *(f"select row from leases where phase = {phase}" for phase in (1, 2, 3, 5)),
    ]
)


def _leases(connection: sqlite3.Connection, where: str, values: tuple[object, ...] = ()) -> list[LeaseRow]:
    """Leases as `l`, with the wall time of their last receipt and their parent's id."""
    return [(from_row(row[:-2]), row[-2], row[-1]) for row in connection.execute(f"{_LOOK} {where}", values).fetchall()]


def open_by_repo(connection: sqlite3.Connection) -> dict[str, tuple[int, int, int]]:
    """(pending, waiting, retry_wait) per repository that has any."""
    counts: dict[str, list[int]] = {}
    for phase in (1, 2, 3):
        for repo, number in connection.execute(
            f"select repo, count(*) from leases where phase = {phase} group by repo"
        ).fetchall():
            counts.setdefault(repo, [0, 0, 0])[phase - 1] = number
    # The row of a live lease stands as it was before it was offered.
    for repo, phase in connection.execute(
        "select l.repo, l.phase from repositories r join leases l on l.row = r.lease"
    ).fetchall():
        counts[repo][phase - 1] -= 1
    return {repo: (numbers[0], numbers[1], numbers[2]) for repo, numbers in counts.items()}


def holder(connection: sqlite3.Connection, repo: str) -> str | None:
    """The id of the live lease of a repository."""
    row = connection.execute(
        "select l.lease_id from repositories r join leases l on l.row = r.lease where r.name = ?", (repo,)
    ).fetchone()
    return None if row is None else row[0]


def attention(connection: sqlite3.Connection) -> int:
    """How many stopped leases wait for someone to look at them."""
    return int(connection.execute("select count(*) from leases where phase = 5").fetchone()[0])


def trigger_and_config(connection: sqlite3.Connection, lease: Lease) -> tuple[str, str]:
    row = connection.execute(
        "select t.trigger_id, c.version from triggers t, configurations c where t.id = ? and c.id = ?",
        (lease.trigger, lease.config),
    ).fetchone()
    return row[0], row[1]


def continuation(connection: sqlite3.Connection, lease_row: int) -> str | None:
    row = connection.execute(
        "select l.lease_id from checkpoints c join leases l on l.row = c.continuation where c.lease = ?", (lease_row,)
    ).fetchone()
    return None if row is None else row[0]


_RECEIPT: Final = (
    "select r.seq, r.lease, r.event, r.from_state, r.to_state, r.at_ms, r.generation, r.attempt, r.deadline_ms,"
    " r.reason, r.actor, r.config, r.previous, l.lease_id, l.repo from receipts r join leases l on l.row = r.lease"
)


def receipts(
    connection: sqlite3.Connection, *, lease: int | None, repo: str | None, after: int, limit: int
) -> list[Receipt]:
    """Receipts with a greater sequence number, in order. One lease's are found along their chain, not by an index."""
    if lease is not None:
        rows = connection.execute(
            "with recursive chain (seq) as (select receipt from current_leases where row = ? union all"
            " select r.previous from receipts r join chain on r.seq = chain.seq where r.previous > 0)"
            f" {_RECEIPT} where r.seq in (select seq from chain) and r.seq > ? order by r.seq limit ?",
            (lease, after, limit),
        )
    elif repo is not None:
        rows = connection.execute(
            f"{_RECEIPT} where l.repo = ? and r.seq > ? order by r.seq limit ?", (repo, after, limit)
        )
    else:
        rows = connection.execute(f"{_RECEIPT} where r.seq > ? order by r.seq limit ?", (after, limit))
    return [Receipt(*row) for row in rows.fetchall()]


def last_seq(connection: sqlite3.Connection) -> int:
    return int(connection.execute("select coalesce(max(seq), 0) from receipts").fetchone()[0])


def deadlines(connection: sqlite3.Connection) -> list[tuple[int, int]]:
    """(instant on the lease clock, row) of every lease that an instant will change."""
    return connection.execute(
        "select deadline_ms, lease from repositories where lease is not null union all"
        " select deadline_ms, row from leases where phase = 2 and deadline_ms > 0 union all"
        " select deadline_ms, row from leases where phase = 3"
        " and row not in (select lease from repositories where lease is not null)"
    ).fetchall()


def deadlines_of(connection: sqlite3.Connection, rows: list[int]) -> list[tuple[int, int]]:
    """(row, instant) of some leases: 0 for one that is over, or waits for no instant."""
    return connection.execute(
        "select l.row, l.deadline_ms from json_each(?) j join current_leases l on l.row = j.value", (str(rows),)
    ).fetchall()


def offerable_repos(connection: sqlite3.Connection, source_name: str | None = None) -> list[str]:
    """The repositories that have something to offer, or soon will have: of one source, or of all."""
    rows = connection.execute(
        "select repo from leases where phase = 1 and (?1 is null or source_name = ?1)"
        " union select repo from leases where phase = 3 and (?1 is null or source_name = ?1)",
        (source_name,),
    )
    return [row[0] for row in rows.fetchall()]


def repos_waiting(connection: sqlite3.Connection, reason: str) -> set[str]:
    """The repositories where a lease waits for `reason`."""
    rows = connection.execute("select distinct repo from leases where phase = 2 and reason = ?", (reason,)).fetchall()
    return {row[0] for row in rows}


def has_work(connection: sqlite3.Connection) -> bool:
    """Whether anything is live, or will be offered without a source changing."""
    row = connection.execute(
        "select exists (select 1 from repositories where lease is not null)"
        " or exists (select 1 from leases where phase = 1)"
        " or exists (select 1 from leases where phase = 3)"
        " or exists (select 1 from leases where phase = 2 and reason = 'repo_busy')"
    ).fetchone()
    return bool(row[0])
