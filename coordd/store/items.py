"""What each source showed last: the ground for explaining, and for noticing that something changed."""

import sqlite3
from typing import Final

import msgspec

from coordd.store.transaction import Transaction


class Item(msgspec.Struct, frozen=True):
    """One row per task or message of a source. No title and no text, ever."""

    source_name: str
    item_id: str
    kind: str  # task or message
    repo: str
    revision: str
    digest: str
    status: str
    outcome: str  # eligible, wait, stop, done, cancelled or none
    code: str  # the reason, stable
    rules: str  # JSON: every rule that was applied, with its outcome
    until_ms: int | None  # wall time
    priority: int
    lease: int | None  # row of its latest lease
    reopened: bool  # shown as over or waiting since that lease was made
    worked: bool  # a worker of ours has been at it under an earlier lease
    fingerprint: str  # over everything the source said


_COLUMNS: Final = (
    "source_name, item_id, kind, repo, revision, digest, status, outcome, code, rules, until_ms, priority, lease,"
    " reopened, worked, fingerprint"
)
_SELECT: Final = f"select {_COLUMNS} from items"
_PUT: Final = f"insert or replace into items ({_COLUMNS}) values ({', '.join('?' * 16)})"


def put(tx: Transaction, item: Item) -> None:
    tx.execute(_PUT, msgspec.structs.astuple(item))


def remove(tx: Transaction, source_name: str, item_id: str) -> None:
    tx.execute("delete from items where source_name = ? and item_id = ?", (source_name, item_id))


def get(tx: Transaction, source_name: str, item_id: str) -> Item | None:
    row = tx.execute(f"{_SELECT} where source_name = ? and item_id = ?", (source_name, item_id)).fetchone()
    return None if row is None else _from_row(row)


def fingerprints(connection: sqlite3.Connection, source_name: str) -> dict[str, str]:
    """What is known of a source, in short: by this a pass tells which of its items changed."""
    return dict(
        connection.execute("select item_id, fingerprint from items where source_name = ?", (source_name,)).fetchall()
    )


def worked(connection: sqlite3.Connection, source_name: str) -> set[str]:
    """The items that a worker of ours has been at."""
    rows = connection.execute(
        "select i.item_id from items i left join current_leases l on l.row = i.lease"
        " where i.source_name = ? and (i.worked or l.attempt > 0)",
        (source_name,),
    )
    return {row[0] for row in rows.fetchall()}


def find(connection: sqlite3.Connection, item_id: str, source_name: str | None) -> list[Item]:
    if source_name is not None:
        rows = connection.execute(f"{_SELECT} where source_name = ? and item_id = ?", (source_name, item_id))
    else:
        rows = connection.execute(f"{_SELECT} where item_id = ? order by source_name", (item_id,))
    return [_from_row(row) for row in rows.fetchall()]


def point_at(tx: Transaction, source_name: str, item_id: str, lease: int) -> None:
    """Note which lease of an item is the latest."""
    tx.execute(
        "update items set lease = ?, reopened = 0 where source_name = ? and item_id = ?", (lease, source_name, item_id)
    )


def lease_of(tx: Transaction, source_name: str, item_id: str) -> int | None:
    row = tx.execute("select lease from items where source_name = ? and item_id = ?", (source_name, item_id)).fetchone()
    return None if row is None else row[0]


def _from_row(row: tuple[object, ...]) -> Item:
    return Item(*row)  # type: ignore[arg-type]  # the table is STRICT, and its 0 and 1 do as booleans
