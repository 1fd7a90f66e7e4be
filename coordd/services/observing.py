"""Looks at one source, again and again: when it changes, when its time has come, and when a lease of it has ended."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeVar

import msgspec
import trio

from coordd.config.settings import Source
from coordd.domain.clock import Clock
from coordd.domain.errors import SourceFailed, StoreUnavailable
from coordd.domain.work import Problem, Snapshot
from coordd.policy.backoff import source_delay_s
from coordd.policy.eligibility import Assessment, Policy, assess
from coordd.services.gates import Gates
from coordd.services.intake import Intake, fingerprint_of
from coordd.store import items, sources
from coordd.store.store import Store
from coordd.store.transaction import Transaction

log = logging.getLogger(__name__)

T = TypeVar("T")

AT_ONCE: Final = 64  # items per transaction: a pass over thousands must not hold up the workers
PROBLEMS_KEPT: Final = 50
RETRY_S: Final = 1.0


class Observed(Protocol):
    """A work source, see coordd/sources/base.py."""

    def snapshot(self) -> Snapshot: ...

    async def changed(self) -> None: ...


class Observer:
    """One per source. A failing source backs off alone; the others go on."""

    def __init__(
        self,
        source: Observed,
        settings: Source,
        *,
        store: Store,
        clock: Clock,
        intake: Intake,
        gates: Gates,
        policy: Callable[[], Policy],
        poll_s: Callable[[], float],
        passed: Callable[[str], None],
        threaded: bool = True,
    ) -> None:
        self._source = source
        self.settings = settings
        self._store = store
        self._clock = clock
        self._intake = intake
        self._gates = gates
        self._policy = policy
        self._poll_s = poll_s
        self._passed = passed  # a complete snapshot of the named source has been taken in
        self._threaded = threaded
        self._again: set[str] = set()  # items to look at again
        self._later: set[str] = set()  # items to look at again when their leases have ended
        self._everything = True  # after a start or a reload every item is decided anew
        self._bell = trio.Event()
        self._look_now = False
        self.failures = 0
        self.passes = 0
        gates.stale_sources.add(settings.name)

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to look at again."""
        return not self._again and not self._look_now

    def reconsider(self, item_id: str) -> None:
        """Compare an item with its leases once more."""
        self._again.add(item_id)
        self._bell.set()

    def put_off(self, item_id: str) -> None:
        """Reconsider the item when its lease has ended."""
        self._later.add(item_id)

    def lease_ended(self, item_id: str) -> None:
        if item_id in self._later:
            self._later.discard(item_id)
            self.reconsider(item_id)

    def look(self, *, everything: bool = False) -> None:
        """Take a snapshot now."""
        self._everything = self._everything or everything
        self._look_now = True
        self._bell.set()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch)
            self._look_now = True
            while True:
                try:
                    if self._look_now:
                        self._look_now = False
                        await self.step()
                    await self.catch_up()
                except StoreUnavailable as error:
                    log.warning("source %s could not be taken in: %s", self.name, error)
                    self._look_now = True
                    await trio.sleep(RETRY_S)
                    continue
                pause_s = source_delay_s(self.failures) if self.failures else self._poll_s()
                with trio.move_on_after(pause_s) as pause:
                    await self._bell.wait()
                self._bell = trio.Event()
                if pause.cancelled_caught:
                    self._look_now = True

    async def step(self) -> bool:
        """Take one snapshot and everything that follows from it. Returns whether the source gave a complete one."""
        try:
            if self._threaded:
                snapshot = await trio.to_thread.run_sync(self._source.snapshot)
            else:
                snapshot = self._source.snapshot()
        except SourceFailed as error:
            await self._failed(str(error.detail.get("cause", "failed")))
            return False
        except Exception:
            log.exception("source %s could not be read", self.name)
            await self._failed("internal")
            return False
        everything, self._everything = self._everything, False
        try:
            await self._take(snapshot, everything)
        except BaseException:
            self._everything = self._everything or everything
            raise
        self.failures = 0
        self.passes += 1
        self._gates.stale_sources.discard(self.name)
        self._passed(self.name)
        return True

    async def catch_up(self) -> None:
        """Look again at the items whose leases have ended."""
        while self._again:
            batch = [self._again.pop() for _ in range(min(AT_ONCE, len(self._again)))]
            try:
                await self._store.write(partial(self._look_again, batch))
            except StoreUnavailable:
                self._again.update(batch)
                raise

    def _look_again(self, batch: list[str], tx: Transaction) -> None:
        for item_id in batch:
            self._intake.look_again(tx, self.settings, item_id)

    async def _watch(self) -> None:
        while True:
            await self._source.changed()
            self.look()

    async def _take(self, snapshot: Snapshot, everything: bool) -> None:
        known = await self._store.read_aside(lambda connection: items.fingerprints(connection, self.name))
        worked = await self._store.read_aside(lambda connection: items.worked(connection, self.name))
        judged = assess(
            snapshot, self.name, self._policy(), now_ms=self._clock.wall_ms(), ours=lambda item_id: item_id in worked
        )
        wanted = [item for item in judged if everything or known.get(item.item_id) != fingerprint_of(item)]
        gone = list(known.keys() - {item.item_id for item in judged})
        # Endings first: what they free is there for what begins. A task that was renamed is not run twice at once.
        for batch in _batches(gone):
            await self._store.write(partial(self._drop, batch))
        wanted.sort(key=lambda item: (item.outcome in ("eligible", "wait"), item.priority))
        for part in _batches(wanted):
            await self._store.write(partial(self._take_in, part))
        await self._store.write(lambda tx: self._record(tx, len(judged), snapshot.problems))
        if wanted or gone:
            log.info("source %s: %d items, %d changed, %d gone", self.name, len(judged), len(wanted), len(gone))

    def _drop(self, batch: list[str], tx: Transaction) -> None:
        self._intake.drop(tx, self.name, batch)

    def _take_in(self, part: list[Assessment], tx: Transaction) -> None:
        self._intake.take(tx, self.settings, part)

    async def _failed(self, cause: str) -> None:
        """No dispatch from a source that does not answer in full; what is being worked on goes on."""
        self.failures += 1
        self._gates.stale_sources.add(self.name)
        log.warning("source %s gave no complete snapshot (%s), %d in a row", self.name, cause, self.failures)
        await self._store.write(lambda tx: sources.failed(tx, self.name, self.settings.kind, cause, self.failures))

    def _record(self, tx: Transaction, count: int, problems: tuple[Problem, ...]) -> None:
        sources.succeeded(
            tx,
            self.name,
            self.settings.kind,
            at_ms=self._clock.wall_ms(),
            items=count,
            problems=msgspec.json.encode(problems[:PROBLEMS_KEPT]).decode(),
        )


def _batches(things: list[T]) -> list[list[T]]:
    return [things[start : start + AT_ONCE] for start in range(0, len(things), AT_ONCE)]
