"""One transaction as the units of work see it: statements, the receipt chain, and what to do once it is on disk."""

import sqlite3
from collections.abc import Callable
from typing import Any, Final

from coordd.domain.clock import Clock
from coordd.domain.errors import WriteConflict
from coordd.domain.lease import Lease
from coordd.domain.receipt import Values, chain
from coordd.store.queue import PendingQueue

CACHED_LEASES: Final = 2048

_INSERT_RECEIPT: Final = f"insert into receipts values ({', '.join('?' * 14)})"
COLUMNS: Final = 13  # of a receipt's values; the rest stands in the lease's row

HeldChange = tuple[str, int, int, str, str, str, int]  # the values of _CHANGE_HELD, whose last is the version expected
_CHANGE_HELD: Final = (
    "update repositories set state = ?, deadline_ms = ?, receipt = ?, worker = ?, anchor = ?"
    " where name = ? and receipt = ?"
)

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
        "_receipts",
        "clock",
        "connection",
        "effects",
        "execute",
        "free",
        "hash",
        "held",
        "lease_ms",
        "leases",
        "pending",
        "retrying",
        "seq",
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
        # Changes of held leases, by repository, to be written together before the commit; None: write each at once.
        self.held: dict[str, HeldChange] | None = {}
        self.free: dict[str, int] = {}  # repositories that nobody holds, as far as known here: their generation
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

    def change_held(self, change: HeldChange) -> bool:
        """Change the row of a repository that is held. False when its version is not the expected one.

        Within a group the last change of a repository stands for those before it. Whether the row read as expected
        is then found at the end of the group, which is undone and run again one by one if it did not.
        """
        held = self.held
        if held is None:
            return self.execute(_CHANGE_HELD, change).rowcount == 1
        earlier = held.get(change[5])
        held[change[5]] = change if earlier is None else (*change[:6], earlier[6])
        return True

    def version_on_disk(self, repo: str, version: int) -> int:
        """The holder's last receipt as the repository's row has it, when it is `version` by now; and forget the change
        that was still to be written, because the row is about to be written anew.
        """
        earlier = self.held.pop(repo, None) if self.held else None
        return version if earlier is None else earlier[6]

    def flush(self) -> None:
        """Write what was put off, and chain the receipts: the last thing before the commit.

        Raises: WriteConflict: a row did not read as a change assumed.
        """
        if self.held:
            if self.connection.executemany(_CHANGE_HELD, self.held.values()).rowcount != len(self.held):
                raise WriteConflict("a lease changed meanwhile; ask again")
            self.held.clear()
        if not self._receipts:
            return
        hash, rows = self.hash, []
        for receipt in self._receipts:
            hash = chain(hash, receipt)
            rows.append((*receipt[:COLUMNS], bytearray(hash)))  # sqlite3 looks for an adapter for every `bytes`
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
        self.free.clear()
        if self.held:
            self.held.clear()

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
        if len(self.free) > CACHED_LEASES:
            self.free.clear()
        return receipts, effects
