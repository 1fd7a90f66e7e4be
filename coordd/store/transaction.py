"""One transaction as the units of work see it: statements, the receipt chain, and what to do once it is on disk."""

import sqlite3
from collections.abc import Callable
from operator import attrgetter
from typing import Final

from coordd.domain.clock import Clock
from coordd.domain.lease import Lease
from coordd.domain.receipt import Receipt, chain

CACHED_LEASES: Final = 2048

_INSERT_RECEIPT: Final = f"insert into receipts values ({', '.join('?' * 14)})"
_columns: Final = attrgetter(
    "seq", "lease", "event", "from_state", "to_state", "at_ms", "generation", "attempt", "deadline_ms", "reason",
    "actor", "config", "previous",
)  # fmt: skip

Mark = tuple[int, int, int, int]


class Transaction:
    """The write connection, while one group of units runs.

    Receipts are buffered and inserted together before the commit. Leases that were read or written stay cached
    from one transaction to the next: there is one writer, so the cache cannot be wrong unless a transaction is
    undone, and then what it changed is forgotten.
    """

    __slots__ = ("_changed", "_receipts", "clock", "connection", "effects", "execute", "hash", "lease_ms", "leases", "seq", "wall_ms")

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
        self.effects: list[Callable[[], object]] = []
        self._receipts: list[Receipt] = []
        self._changed: list[int] = []

    def begin(self) -> None:
        """Lock the database for writing, and take the time. Raises sqlite3.Error."""
        self.execute("begin immediate")
        self.lease_ms = self.clock.lease_ms()
        self.wall_ms = self.clock.wall_ms()

    def later(self, effect: Callable[[], object]) -> None:
        """Call `effect` on the event loop once the transaction is on disk; never if it is undone."""
        self.effects.append(effect)

    def remember(self, lease: Lease) -> None:
        """Cache a lease as it reads after this transaction."""
        self.leases[lease.row] = lease
        self._changed.append(lease.row)

    def add_receipt(self, receipt: Receipt) -> None:
        """Append to the chain; `receipt.seq` must be `seq + 1`."""
        self.seq = receipt.seq
        self._receipts.append(receipt)

    def flush(self) -> None:
        """Chain and write the receipts of this transaction: the last thing before its commit."""
        if not self._receipts:
            return
        hash, rows = self.hash, []
        for receipt in self._receipts:
            hash = chain(hash, receipt)
            rows.append((*_columns(receipt), bytearray(hash)))  # sqlite3 looks for an adapter for every `bytes`
        self.connection.executemany(_INSERT_RECEIPT, rows)
        self.hash = hash

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

    def undo_all(self, seq: int, hash: bytes) -> None:
        """Forget the whole transaction: the chain ends with receipt `seq`, as it does on disk."""
        self.undo((seq, 0, 0, 0))
        self.hash = hash

    def settled(self) -> tuple[list[Receipt], list[Callable[[], object]]]:
        """After the commit: hand over the receipts and the effects, and begin anew."""
        effects, self.effects = self.effects, []
        receipts, self._receipts = self._receipts, []
        self._changed.clear()
        if len(self.leases) > CACHED_LEASES:
            for row in list(self.leases)[: CACHED_LEASES // 2]:  # the oldest; a miss costs one read
                del self.leases[row]
        return receipts, effects
