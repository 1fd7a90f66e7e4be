"""The one door to SQLite."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Final, TypeVar

import trio

from coordd.domain.clock import Clock
from coordd.domain.receipt import GENESIS
from coordd.store import migrations
from coordd.store.connection import open_reader, open_writer, unavailable
from coordd.store.transaction import Transaction
from coordd.store.writer import Unit, Work, Writer

T = TypeVar("T")

FILE_NAME: Final = "coordd.db"


class Store:
    """Units of work that wait together commit together; reads never wait for them.

    A store without a thread does everything at once in the calling task: for tests on a mock clock, which does not
    wait for threads, and for one-shot commands. Both kinds pass tests/contracts/test_store.py.
    """

    def __init__(self, path: str, clock: Clock, *, threaded: bool = True) -> None:
        """Open the store, whose schema `prepare` has brought up to date.

        Raises: StoreUnavailable.
        """
        self.path = path
        self._threaded = threaded
        try:
            connection = open_writer(path)
            last = connection.execute("select seq, hash from receipts order by seq desc limit 1").fetchone()
            self._reader = open_reader(path)
        except sqlite3.Error as error:
            raise unavailable(error) from error
        self.tx = Transaction(connection, clock, *(last or (0, GENESIS)))
        self.writer = Writer(connection, self.tx, threaded=threaded)

    @staticmethod
    def prepare(state_dir: str) -> str:
        """Make the store's file in `state_dir` ready to open, under the lock. Raises StoreRefused."""
        path = os.path.join(state_dir, FILE_NAME)
        migrations.prepare(path)
        return path

    async def run(self) -> None:
        """Serve writes until cancelled."""
        await self.writer.run()

    async def write(self, work: Work[T]) -> T:
        """Run `work(tx)` in the next transaction, see `Writer.write`."""
        return await self.writer.write(work)

    def submit(self, unit: Unit) -> None:
        self.writer.submit(unit)

    def pump(self) -> None:
        self.writer.pump()

    def take_bell(self) -> int | None:
        return self.writer.take_bell()

    def give_bell_back(self) -> None:
        self.writer.give_bell_back()

    def answered(self) -> None:
        self.writer.answered()

    @property
    def in_flight(self) -> bool:
        return self.writer.in_flight

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a short read at once, over one view of what is committed.

        Raises: StoreUnavailable, or what `work` raises.
        """
        try:
            self._reader.execute("begin")
            try:
                return work(self._reader)
            finally:
                self._reader.execute("commit")
        except sqlite3.Error as error:
            raise unavailable(error) from error

    async def read_aside(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a long read on a thread and a connection of its own, over one consistent view."""
        if not self._threaded:
            await trio.lowlevel.checkpoint()
            return self._read_view(work)
        return await trio.to_thread.run_sync(self._read_view, work)

    async def close(self) -> None:
        await self.writer.finish()
        self._reader.close()

    def _read_view(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with closing(open_reader(self.path)) as connection:
                connection.execute("begin")
                return work(connection)
        except sqlite3.Error as error:
            raise unavailable(error) from error
