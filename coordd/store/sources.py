"""How each source did last."""

import sqlite3

import msgspec

from coordd.store.transaction import Transaction


class SourceState(msgspec.Struct, frozen=True):
    name: str
    kind: str
    last_success_ms: int | None
    error: str | None  # a stable cause
    failures: int  # in a row
    items: int
    problems: str  # JSON: the items that could not be taken in


def succeeded(tx: Transaction, name: str, kind: str, *, at_ms: int, items: int, problems: str) -> None:
    tx.execute(
        "insert into sources (name, kind, last_success_ms, error, failures, items, problems)"
        " values (?, ?, ?, null, 0, ?, ?) on conflict (name) do update set kind = excluded.kind,"
        " last_success_ms = excluded.last_success_ms, error = null, failures = 0, items = excluded.items,"
        " problems = excluded.problems",
        (name, kind, at_ms, items, problems),
    )


def failed(tx: Transaction, name: str, kind: str, error: str, failures: int) -> None:
    tx.execute(
        "insert into sources (name, kind, error, failures) values (?, ?, ?, ?) on conflict (name) do update set"
        " kind = excluded.kind, error = excluded.error, failures = excluded.failures",
        (name, kind, error, failures),
    )


def all_states(connection: sqlite3.Connection) -> dict[str, SourceState]:
    rows = connection.execute(
        "select name, kind, last_success_ms, error, failures, items, problems from sources"
    ).fetchall()
    return {row[0]: SourceState(*row) for row in rows}
