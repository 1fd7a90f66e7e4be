"""What workers left behind. It never leaves this machine."""

import sqlite3

from coordd.store.transaction import Transaction


def keep(tx: Transaction, lease_row: int, document: bytes, continuation: int | None) -> None:
    tx.execute(
        "insert into checkpoints (lease, document, continuation) values (?, ?, ?)",
        (lease_row, document.decode(), continuation),
    )


def of(connection: sqlite3.Connection, lease_row: int) -> bytes | None:
    found = connection.execute("select document from checkpoints where lease = ?", (lease_row,)).fetchone()
    return None if found is None else found[0].encode()


def in_transaction(tx: Transaction, lease_row: int) -> tuple[bytes, int | None] | None:
    """The document a lease left, and the row of the lease that continues it."""
    found = tx.execute("select document, continuation from checkpoints where lease = ?", (lease_row,)).fetchone()
    return None if found is None else (found[0].encode(), found[1])
