"""Keeps anchored leases: renews them while what they are tied to lives, and ends them at once when it dies."""

import logging
from collections.abc import Callable
from typing import Protocol

import trio

from coordd.domain.anchor import Anchor
from coordd.domain.clock import Clock
from coordd.domain.errors import StoreUnavailable
from coordd.domain.lease import HELD, LIVE, Lease
from coordd.services.deadlines import Deadlines
from coordd.services.leasing import Leasing, Via
from coordd.store import leases
from coordd.store.store import Store
from coordd.store.transaction import Transaction

log = logging.getLogger(__name__)

Key = tuple[int, int]
LOOK_S = 5.0  # how often a suspend is looked for
SLEPT_MS = 1000  # less is not a suspend
RETRY_S = 0.2


class Watch(Protocol):
    """The processes: see `coordd.liveness.process.ProcessWatch`."""

    def add(self, anchor: Anchor) -> bool: ...

    def remove(self, key: Key) -> None: ...

    def alive(self, anchor: Anchor) -> bool: ...


class Keeper:
    def __init__(self, *, store: Store, clock: Clock, watch: Watch, slept_ms: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock
        self._watch = watch
        self._slept_ms = slept_ms
        self.leasing: Leasing  # set by whoever wires the two together
        self.how_it_ended: Callable[[int], str | None] = lambda pid: None  # a reason code for a process of our own
        self._anchors: dict[int, tuple[Anchor, Via | None]] = {}  # by row of the lease
        self._by_process: dict[Key, set[int]] = {}
        self._by_connection: dict[Via, set[int]] = {}
        self._dead: dict[int, str] = {}  # row -> why
        self._bell = trio.Event()
        self._renewals = Deadlines(sooner=self._ring)
        self._due: dict[int, int] = {}  # row -> the one entry of `_renewals` that counts
        self.draining = False

    def hold(self, lease: Lease, anchor: Anchor, via: Via | None) -> None:
        """Tie a live lease to its anchor, once the ack is on disk."""
        self.release(lease.row)
        self._anchors[lease.row] = (anchor, via)
        if anchor.kind == "process":
            self._by_process.setdefault((anchor.pid, anchor.start), set()).add(lease.row)
            if not self._watch.add(anchor):
                self._died(lease.row, self.how_it_ended(anchor.pid) or "holder_died")
        elif via is None or via.ended:
            self._died(lease.row, "connection_closed")
        else:
            self._by_connection.setdefault(via, set()).add(lease.row)
        self._schedule(lease)

    def release(self, row: int) -> None:
        """The lease is over, or has another anchor."""
        self._due.pop(row, None)
        held = self._anchors.pop(row, None)
        if held is None:
            return
        anchor, via = held
        key = (anchor.pid, anchor.start)
        rows = self._by_process.get(key)
        if rows is not None:
            rows.discard(row)
            if not rows:
                del self._by_process[key]
                self._watch.remove(key)
        if via is not None and (rows := self._by_connection.get(via)) is not None:
            rows.discard(row)
            if not rows:
                del self._by_connection[via]

    def alive(self, row: int) -> bool:
        """Whether the lease has an anchor that lives at this instant."""
        held = self._anchors.get(row)
        if held is None or row in self._dead:
            return False
        anchor, via = held
        return self._watch.alive(anchor) if anchor.kind == "process" else via is not None and not via.ended

    def process_ended(self, key: Key) -> None:
        reason = self.how_it_ended(key[0]) or "holder_died"
        for row in self._by_process.get(key, ()):
            self._died(row, reason)

    def connection_ended(self, via: Via) -> None:
        """A connection that the daemon ends because it stops is no sign of its client."""
        if not self.draining:
            for row in self._by_connection.get(via, ()):
                self._died(row, "connection_closed")

    def depends_on(self, via: Via) -> bool:
        return via in self._by_connection

    async def recover(self, boot: str) -> list[tuple[Lease, Anchor]]:
        """After a start and before anything expires: verify every anchor again.

        A process that lives keeps its lease with a fresh ttl; one that died has lost it. A connection did not
        survive us, which is not its client's fault: the lease has one fresh ttl to be renewed by hand.

        Returns: the leases that are kept, with their anchors.
        """

        def verify(tx: Transaction) -> list[tuple[Lease, Anchor]]:
            living = []
            for lease in leases.live(tx, anchored=True):
                anchor = Anchor.parse(lease.anchor)
                if anchor.kind == "connection":
                    self.leasing.let_go(tx, lease)
                elif anchor.boot == boot and self._watch.alive(anchor):
                    living.append((self.leasing.keep(tx, lease) if lease.state in HELD else lease, anchor))
                else:
                    self.leasing.expire(tx, lease, "holder_died", "daemon:keeper")
            return living

        living = await self._store.write(verify)
        for lease, anchor in living:
            self.hold(lease, anchor, None)
        if living:
            log.info("%d leases are kept for processes that outlived the daemon", len(living))
        return living

    async def run(self) -> None:
        while True:
            try:
                await self.step()
            except StoreUnavailable as error:
                log.warning("anchored leases could not be kept: %s", error)
                await trio.sleep(RETRY_S)
                continue
            due_ms = self._renewals.next_ms()
            pause_s = LOOK_S if due_ms is None else min(LOOK_S, max(0, due_ms - self._clock.lease_ms()) / 1000)
            with trio.move_on_after(pause_s):
                await self._bell.wait()
            self._bell = trio.Event()

    async def step(self) -> None:
        """End what has died, and renew what is due; after a suspend, everything that lives."""
        if self._dead:
            await self._store.write(self._end_dead)
        now_ms = self._clock.lease_ms()
        if self._slept_ms() > SLEPT_MS:
            log.info("the machine has slept: every living anchor gets a fresh ttl")
            due = list(self._anchors)
        else:
            due = [row for row in self._renewals.due(now_ms, 1024) if self._due.get(row, now_ms + 1) <= now_ms]
        if not due:
            return
        try:
            kept = await self._store.write(lambda tx: self._renew(tx, due))
        except StoreUnavailable:
            for row in due:
                self._renewals.push(now_ms, row)
            raise
        for lease in kept:
            self._schedule(lease)

    def _schedule(self, lease: Lease) -> None:
        if lease.row in self._anchors:
            self._due[lease.row] = at_ms = self._clock.lease_ms() + lease.ttl_ms // 3
            self._renewals.push(at_ms, lease.row)

    def _end_dead(self, tx: Transaction) -> None:
        for row, reason in list(self._dead.items()):
            lease = leases.at_row(tx, row)
            if lease is not None and lease.state in LIVE:
                self.leasing.expire(tx, lease, reason, "daemon:keeper")
            tx.later(self._buried, row)

    def _buried(self, row: int) -> None:
        self._dead.pop(row, None)
        self.release(row)

    def _renew(self, tx: Transaction, rows: list[int]) -> list[Lease]:
        kept = []
        for row in rows:
            if not self.alive(row):
                continue
            lease = leases.at_row(tx, row)
            if lease is not None and lease.state in LIVE:
                kept.append(self.leasing.keep(tx, lease) if lease.state in HELD else lease)
        return kept

    def _died(self, row: int, reason: str) -> None:
        self._dead[row] = reason
        self._ring()

    def _ring(self) -> None:
        self._bell.set()
