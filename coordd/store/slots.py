"""The rows of `repositories` as slots: each has room for one holder. Only the writer uses this file.

Within a group of units the changes are gathered and written together before the commit, a third cheaper than one by
one. Every one of them names the version it expects, the holder's last receipt; whether all rows read so is found when
they are written, and a group in which one did not is undone and run again with each change written at once.
"""

import sqlite3
from collections.abc import Callable
from typing import Any, Final

import msgspec

from coordd.domain.errors import WriteConflict

KNOWN_FREE: Final = 4096

_READ: Final = "select lease, generation from repositories where name = ?"
_HOLD: Final = (
    "update repositories set lease = ?, state = ?, generation = ?, attempt = ?, deadline_ms = ?, receipt = ?,"
    " worker = ?, anchor = ? where name = ? and lease is null"
)
_CHANGE: Final = (
    "update repositories set state = ?, deadline_ms = ?, receipt = ?, worker = ?, anchor = ?"
    " where name = ? and receipt = ?"
)
_FREE: Final = (
    "update repositories set lease = null, state = null, attempt = null, deadline_ms = null, receipt = null,"
    " worker = '', anchor = '', completed = completed + ?, checkpointed = checkpointed + ?, stopped = stopped + ?"
    " where name = ? and receipt = ?"
)


class Slot(msgspec.Struct, frozen=True, gc=False):
    holder: int | None  # row of the lease that holds the repository
    generation: int  # its latest


class Slots:
    def __init__(self, connection: sqlite3.Connection, execute: Callable[..., sqlite3.Cursor]) -> None:
        self._connection = connection
        self._execute = execute
        self.at_once = False  # write each change when it is made
        self._free: dict[str, int] = {}  # repositories known to be free: their generation
        self._frees: dict[str, tuple[Any, ...]] = {}
        self._holds: dict[str, tuple[Any, ...]] = {}
        self._changes: dict[str, tuple[Any, ...]] = {}

    def read(self, repo: str) -> Slot | None:
        """None for a repository that has never had work."""
        generation = self._free.get(repo)
        if generation is not None:
            return Slot(None, generation)
        held = self._holds.get(repo)
        if held is not None:
            return Slot(held[0], held[2])
        row = self._execute(_READ, (repo,)).fetchone()
        return None if row is None else Slot(*row)

    def hold(
        self,
        repo: str,
        lease: int,
        *,
        state: str,
        generation: int,
        attempt: int,
        deadline_ms: int,
        receipt: int,
        worker: str,
        anchor: str,
    ) -> bool:
        """Put a lease into a free slot. False when somebody holds it."""
        if repo in self._frees:
            self.flush()  # freed and held in one group: in this order
        values = (lease, state, generation, attempt, deadline_ms, receipt, worker, anchor, repo)
        self._free.pop(repo, None)
        if self.at_once:
            return self._execute(_HOLD, values).rowcount == 1
        if repo in self._holds:
            return False
        self._holds[repo] = values
        return True

    def change(
        self, repo: str, version: int, *, state: str, deadline_ms: int, receipt: int, worker: str, anchor: str
    ) -> bool:
        """Change what is said of the holder. False when its version is another."""
        if self.at_once:
            return self._execute(_CHANGE, (state, deadline_ms, receipt, worker, anchor, repo, version)).rowcount == 1
        earlier = self._changes.get(repo)
        if earlier is not None:
            version = earlier[6]  # the last change of a group stands for those before it
        self._changes[repo] = (state, deadline_ms, receipt, worker, anchor, repo, version)
        return True

    def free(self, repo: str, version: int, *, generation: int, state: str) -> bool:
        """Empty the slot, and count how its holder ended. False when its version is another."""
        ended = (int(state == "completed"), int(state == "checkpointed"), int(state == "stopped"))
        self._free[repo] = generation
        if self.at_once:
            return self._execute(_FREE, (*ended, repo, version)).rowcount == 1
        if repo in self._holds:
            self.flush()
        earlier = self._changes.pop(repo, None)
        self._frees[repo] = (*ended, repo, version if earlier is None else earlier[6])
        return True

    def flush(self) -> None:
        """Write what was gathered. Raises WriteConflict: a row did not read as a change expected."""
        if self._frees:
            self._write(_FREE, self._frees)
        if self._holds:
            self._write(_HOLD, self._holds)
        if self._changes:
            self._write(_CHANGE, self._changes)

    def _write(self, statement: str, gathered: dict[str, tuple[Any, ...]]) -> None:
        if len(gathered) == 1:
            written = self._execute(statement, *gathered.values()).rowcount
        else:
            written = self._connection.executemany(statement, gathered.values()).rowcount
        if written != len(gathered):
            raise WriteConflict("a lease changed meanwhile; ask again")
        gathered.clear()

    def forget(self) -> None:
        """The transaction was undone."""
        self._free.clear()
        self._frees.clear()
        self._holds.clear()
        self._changes.clear()

    def trim(self) -> None:
        """Keep what is known small: a miss costs one read."""
        if len(self._free) > KNOWN_FREE:
            self._free.clear()
