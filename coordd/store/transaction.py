"""One transaction as the units of work see it: statements, the receipt chain, and what to do once it is on disk."""

import sqlite3
from collections.abc import Callable
from typing import Any, Final

from coordd.domain.clock import Clock
from coordd.domain.lease import Lease
from coordd.domain.receipt import Values, chain
from coordd.store.queue import PendingQueue
from coordd.store.slots import Slots

CACHED_LEASES: Final = 2048

COLUMNS: Final = 13  # of a receipt's values; the rest stands in the lease's row
CHUNKS: Final = (32, 8, 1)
_INSERT_RECEIPTS: Final = {
    rows: "insert into receipts values " + ", ".join([f"({', '.join('?' * (COLUMNS + 1))})"] * rows) for rows in CHUNKS
}

Mark = tuple[int, int, int, int]
Effect = tuple[Callable[..., object], tuple[Any, ...]]


class Transaction:
    """The write connection, while one group of units runs.

    Receipts are buffered and inserted together before the commit. Leases that were read or written stay cached
    from one transaction to the next: there is one writer, so the cache cannot be wrong unless a transaction is
    undone, and then what it changed is forgotten.
    """

    __slots__ = (
        "_changed",
        "_last",
        "_receipts",
        "clock",
        "connection",
        "effects",
        "execute",
        "hash",
        "lease_ms",
        "leases",
        "pending",
        "retrying",
        "seq",
        "slots",
        "wall_ms",
    )

    def __init__(self, connection: sqlite3.Connection, clock: Clock, seq: int, hash: bytes) -> None:
        self.connection = connection
        self.clock = clock
        self.lease_ms = clock.lease_ms()  # one transaction, one instant: on the lease clock,
        self.wall_ms = clock.wall_ms()  # and on the wall
        # One cursor for all statements spares an object per statement; every caller fetches what it asked for at once.
        self.execute: Callable[..., sqlite3.Cursor] = connection.cursor().execute
        self.seq = seq  # of the last receipt
        self.hash = hash  # of the last receipt on disk
        self.leases: dict[int, Lease] = {}
        self.slots = Slots(connection, self.execute)
        self._last: dict[str, list[tuple[Any, ...]]] = {}  # statements whose outcome nothing in the group depends on
        self.pending = PendingQueue()
        self.retrying: set[str] = set()  # repositories where a lease may wait for a retry
        self.effects: list[Effect] = []
        self._receipts: list[Values] = []
        self._changed: list[int] = []

    def begin(self) -> None:
        """Lock the database for writing, and take the time. Raises sqlite3.Error."""
        self.execute("begin immediate")
        self.lease_ms = self.clock.lease_ms()
        self.wall_ms = self.clock.wall_ms()

    def later(self, effect: Callable[..., object], *arguments: Any) -> None:
        """Call `effect` on the event loop once the transaction is on disk; never if it is undone."""
        self.effects.append((effect, arguments))

    def remember(self, lease: Lease) -> None:
        """Cache a lease as it reads after this transaction."""
        self.leases[lease.row] = lease
        self._changed.append(lease.row)

    def add_receipt(self, receipt: Values) -> None:
        """Append to the chain; the receipt's number must be `seq + 1`."""
        self.seq = receipt[0]
        self._receipts.append(receipt)

    def at_last(self, statement: str, values: tuple[Any, ...]) -> None:
        """Execute a statement before the commit, together with others like it; nothing in the group may need it."""
        if self.slots.at_once:
            self.execute(statement, values)
        else:
            self._last.setdefault(statement, []).append(values)

    def flush(self) -> None:
        """Write what was put off, and chain the receipts: the last thing before the commit.

        Raises: WriteConflict: a row did not read as a change assumed.
        """
        self.slots.flush()
        if self._last:
            for statement, gathered in self._last.items():
                self.connection.executemany(statement, gathered)
            self._last.clear()
        if not self._receipts:
            return
        hash = self.hash
        values: list[object] = []
        for receipt in self._receipts:
            hash = chain(hash, receipt)
            values += receipt[:COLUMNS]
            values.append(bytearray(hash))  # sqlite3 looks for an adapter for every `bytes`
        self.hash = hash
        if len(self._receipts) == 1:
            self.execute(_INSERT_RECEIPTS[1], values)
            return
        width = COLUMNS + 1
        start = 0
        for rows in CHUNKS:  # many rows in one statement: a fifth less than one by one
            while len(values) - start >= rows * width:
                self.execute(_INSERT_RECEIPTS[rows], values[start : start + rows * width])
                start += rows * width

    def mark(self) -> Mark:
        """Where a unit begins, for `undo`."""
        return self.seq, len(self._receipts), len(self.effects), len(self._changed)

    def undo(self, mark: Mark) -> None:
        """Forget what was done in memory since `mark`; SQLite undoes its own part."""
        self.seq, receipts, effects, changed = mark
        del self._receipts[receipts:]
        del self.effects[effects:]
        for row in self._changed[changed:]:
            self.leases.pop(row, None)
        del self._changed[changed:]
        self.slots.forget()
        self._last.clear()

    def undo_all(self, seq: int, hash: bytes) -> None:
        """Forget the whole transaction: the chain ends with receipt `seq`, as it does on disk."""
        self.undo((seq, 0, 0, 0))
        self.hash = hash

    def settled(self) -> tuple[list[Values], list[Effect]]:
        """After the commit: hand over the receipts and the effects, and begin anew."""
        effects, self.effects = self.effects, []
        receipts, self._receipts = self._receipts, []
        self._changed.clear()
        if len(self.leases) > CACHED_LEASES:
            for row in list(self.leases)[: CACHED_LEASES // 2]:  # the oldest; a miss costs one read
                del self.leases[row]
        self.slots.trim()
        return receipts, effects
