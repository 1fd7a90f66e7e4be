"""Single values that outlive a run: the store's name, the pause of everything, the lease clock."""

import sqlite3

from coordd.store.transaction import Transaction


def get(connection: sqlite3.Connection, key: str) -> str | None:
    found = connection.execute("select value from meta where key = ?", (key,)).fetchone()
    return None if found is None else str(found[0])


def put(tx: Transaction, key: str, value: str) -> None:
    tx.execute(
        "insert into meta (key, value) values (?, ?) on conflict (key) do update set value = excluded.value",
        (key, value),
    )


def remove(tx: Transaction, key: str) -> None:
    tx.execute("delete from meta where key = ?", (key,))
