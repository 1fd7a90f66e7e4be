"""Ends leases whose deadline has passed, and wakes what waited for an instant.

Expiry is decided wherever a lease is read; the reaper only makes sure that someone reads it in time.
"""

import logging
from typing import Final

import trio

from coordd.domain.clock import Clock
from coordd.domain.errors import StoreUnavailable
from coordd.domain.lease import LIVE, Lease
from coordd.services.board import Board
from coordd.services.deadlines import Deadlines
from coordd.services.leasing import Leasing
from coordd.store import leases, reading
from coordd.store.store import Store
from coordd.store.transaction import Transaction

log = logging.getLogger(__name__)

AT_ONCE: Final = 256  # leases per transaction: a thousand that expire together must not hold up the others
RETRY_S: Final = 1.0
LONGEST_S: Final = 60.0
GRAIN_S: Final = 0.05


class Reaper:
    def __init__(self, *, store: Store, clock: Clock, board: Board) -> None:
        self._store = store
        self._clock = clock
        self.leasing: Leasing  # set by whoever wires the two together
        self._board = board
        self._bell = trio.Event()
        self.deadlines = Deadlines(sooner=self._ring)

    async def load(self) -> None:
        """Fill the heap from the store, after a start."""
        self.deadlines.load(await self._store.read_aside(reading.deadlines))

    async def run(self) -> None:
        while True:
            try:
                while await self.step():
                    pass
            except StoreUnavailable as error:
                log.warning("expired leases could not be ended: %s", error)
                await trio.sleep(RETRY_S)
                continue
            # Expiry is decided on reading, so nobody needs the reaper to the millisecond; thousands of leases per
            # second would wake it that often.
            await trio.sleep(GRAIN_S)
            next_ms = self.deadlines.next_ms()
            pause_s = LONGEST_S if next_ms is None else (next_ms - self._clock.lease_ms()) / 1000
            with trio.move_on_after(min(max(pause_s, 0), LONGEST_S)):
                await self._bell.wait()
            self._bell = trio.Event()

    async def step(self) -> bool:
        """End what is over now. Returns whether more may be."""
        now_ms = self._clock.lease_ms()
        rows = self.deadlines.due(now_ms, AT_ONCE)
        if not rows:
            return False
        over = []
        for row, deadline_ms in self._store.read(lambda connection: reading.deadlines_of(connection, rows)):
            if deadline_ms > now_ms:  # renewed since the entry was made
                self.deadlines.push(deadline_ms, row)
            elif deadline_ms > 0:
                over.append(row)
        if not over:
            return True
        try:
            await self._store.write(lambda tx: self._look(tx, over))
        except StoreUnavailable:
            for row in over:
                self.deadlines.push(now_ms, row)
            raise
        return True

    def _look(self, tx: Transaction, rows: list[int]) -> None:
        now_ms = tx.lease_ms
        for row in rows:
            lease = leases.at_row(tx, row)
            if lease is None or lease.deadline_ms == 0:
                continue
            if now_ms < lease.deadline_ms:  # renewed since the entry was made
                self._look_again(tx, lease)
            elif lease.state in LIVE:
                if self.leasing.is_kept(lease):
                    self._look_again(tx, self.leasing.keep(tx, lease))
                else:
                    self.leasing.expire_lapsed(tx, lease)
            elif lease.state == "retry_wait":
                tx.later(self._board.hint, lease.repo)
            elif lease.state == "waiting":
                self.leasing.make_ready(tx, lease, "daemon:reaper")

    def _look_again(self, tx: Transaction, lease: Lease) -> None:
        tx.later(self.deadlines.push, lease.deadline_ms, lease.row)

    def _ring(self) -> None:
        self._bell.set()
