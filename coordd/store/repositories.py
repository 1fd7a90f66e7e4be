"""What the store keeps about a repository: its generation, its pause, its tallies."""

import sqlite3

import msgspec

from coordd.store.transaction import Transaction


class Tally(msgspec.Struct, frozen=True):
    name: str
    generation: int
    paused: bool
    completed: int
    checkpointed: int
    stopped: int


def ensure(tx: Transaction, name: str) -> None:
    tx.execute("insert into repositories (name) values (?) on conflict do nothing", (name,))


def set_paused(tx: Transaction, name: str, paused: bool) -> None:
    ensure(tx, name)
    tx.execute("update repositories set paused = ? where name = ?", (int(paused), name))


def tallies(connection: sqlite3.Connection) -> dict[str, Tally]:
    rows = connection.execute(
        "select name, generation, paused, completed, checkpointed, stopped from repositories"
    ).fetchall()
    return {row[0]: Tally(row[0], row[1], bool(row[2]), *row[3:]) for row in rows}
