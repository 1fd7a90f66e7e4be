"""The services, put together over one store, one clock and one watch over processes."""

import os
from collections.abc import Callable
from typing import Any

from coordd.config.settings import Settings
from coordd.domain.anchor import Anchor
from coordd.domain.clock import Clock
from coordd.domain.lease import Lease
from coordd.policy.eligibility import Policy
from coordd.services.board import Board
from coordd.services.explaining import Explaining
from coordd.services.gates import Gates
from coordd.services.intake import Intake
from coordd.services.keeper import Keeper, Watch
from coordd.services.leasing import Leasing
from coordd.services.looking import Looking
from coordd.services.observing import Observed, Observer
from coordd.services.offering import Offering
from coordd.services.operating import Operating
from coordd.services.reaper import Reaper
from coordd.services.stream import Stream
from coordd.store import leases, meta, reading
from coordd.store.store import Store
from coordd.store.transaction import Transaction


class Core:
    """Everything but sockets, signals and sources' files."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        watch: Watch,
        slept_ms: Callable[[], int],
        settings: Settings,
        is_directory: Callable[[str], bool] = os.path.isdir,
    ) -> None:
        self.store = store
        self.clock = clock
        self.settings = settings
        self._is_directory = is_directory
        self.stream = Stream()
        store.writer.publish = self.stream.publish
        self.board = Board()
        self.gates = Gates()
        self.keeper = Keeper(store=store, clock=clock, watch=watch, slept_ms=slept_ms)
        self.reaper = Reaper(store=store, clock=clock, board=self.board)
        store_name = store.read(lambda connection: meta.get(connection, "store"))
        assert store_name is not None, "every store has a name from its first migration on"
        self.leasing = Leasing(
            store_name=store_name,
            settings=settings.leases,
            board=self.board,
            deadlines=self.reaper.deadlines,
            anchors=self.keeper,
        )
        self.keeper.leasing = self.reaper.leasing = self.leasing
        self.leasing.ended = self._lease_ended
        self.leasing.reconsider = self._reconsider
        self.offering = Offering(
            leasing=self.leasing,
            board=self.board,
            gates=self.gates,
            deadlines=self.reaper.deadlines,
            repos={},
        )
        self.intake = Intake(leasing=self.leasing, gates=self.gates, settings=lambda: self.settings)
        self.intake.put_off = self._put_off
        self.looking = Looking(clock=clock, gates=self.gates, board=self.board, settings=settings)
        self.explaining = Explaining(clock=clock, gates=self.gates, looking=self.looking)
        self.operating = Operating(leasing=self.leasing, board=self.board, gates=self.gates)
        self.observers: dict[str, Observer] = {}
        self.taken_away: Callable[[Lease], None] = lambda lease: None  # a live lease ended; for transports
        self.apply(settings)

    def apply(self, settings: Settings) -> None:
        """Put a configuration into force. Observers are the caller's: their sources may have to be opened anew."""
        self.settings = settings
        self.leasing.settings = settings.leases
        self.looking.settings = settings
        self.offering.repos = {repo.name: repo for repo in settings.repo}
        self.gates.selected = frozenset(self.offering.repos)

    def observe(self, source: Observed, name: str, *, threaded: bool = True) -> Observer:
        """An observer for a configured source; whoever calls runs it."""
        configured = next(source for source in self.settings.source if source.name == name)
        observer = Observer(
            source,
            configured,
            store=self.store,
            clock=self.clock,
            intake=self.intake,
            gates=self.gates,
            policy=lambda: self.policy_for(observer),
            poll_s=lambda: observer.settings.poll_s or self.settings.daemon.poll_s,
            passed=lambda name: self._source_passed(name),
            threaded=threaded,
        )
        self.observers[name] = observer
        return observer

    def policy_for(self, observer: Observer) -> Policy:
        return Policy(repos=self.gates.selected, default_repo=observer.settings.repo, allow=self.settings.policy.allow)

    async def recover(self, boot: str, *, rebooted: bool) -> list[tuple[Lease, Anchor]]:
        """After a start, before anything is served or expires. Returns the leases that living processes keep."""
        self.store.read(self.leasing.load)
        await self.store.write(leases.load_mirrors)
        await self.store.write(self.operating.load_pauses)
        if rebooted:
            await self.store.write(self._after_reboot)
        living = await self.keeper.recover(boot)
        await self.reaper.load()
        await self.look_at_paths()
        self.board.hint_all(await self.store.read_aside(reading.offerable_repos))
        return living

    async def look_at_paths(self) -> None:
        """Notice directories that have gone, and those that have come back."""
        pathless = {repo.name for repo in self.settings.repo if not self._is_directory(repo.path)}
        back = self.gates.pathless - pathless
        self.gates.pathless = pathless
        if back:
            await self.store.write(lambda tx: self._paths_back(tx, sorted(back)))
            self.board.hint_all(back)

    def offers_lost(self, lost: list[Lease]) -> None:
        """Offers whose worker went away before it could read them."""
        for lease in lost:
            self.store.submit(_Undelivered(self.leasing, lease))
        self.store.writer.ring()

    def is_idle(self) -> bool:
        """Whether nothing is left to do but to wait for what only the sources can change."""
        settled = all(observer.is_settled and observer.passes > 0 for observer in self.observers.values())
        return settled and not self.store.read(reading.has_work)

    def _lease_ended(self, lease: Lease) -> None:
        self.taken_away(lease)
        observer = self.observers.get(lease.source_name)
        if observer is not None:
            observer.lease_ended(lease.item_id)

    def _reconsider(self, lease: Lease) -> None:
        observer = self.observers.get(lease.source_name)
        if observer is not None:
            observer.reconsider(lease.item_id)

    def _put_off(self, item_id: str, source_name: str) -> None:
        observer = self.observers.get(source_name)
        if observer is not None:
            observer.put_off(item_id)

    def _source_passed(self, name: str) -> None:
        self.board.hint_all(self.store.read(lambda connection: reading.offerable_repos(connection, name)))

    def _paths_back(self, tx: Transaction, names: list[str]) -> None:
        for name in names:
            for lease in leases.waiting_for(tx, name, "path_missing"):
                self.leasing.make_ready(tx, lease, "daemon:paths")

    def _after_reboot(self, tx: Transaction) -> None:
        """No process survived: whoever held a lease is gone. And no retry may wait longer than it ever would."""
        for lease in leases.live(tx):
            self.leasing.expire(tx, lease, "rebooted", "daemon:keeper")
        leases.clamp_retries(tx, tx.lease_ms + round(max(self.settings.leases.delays_s) * 1000))


class _Undelivered:
    """A unit of work that nobody waits for."""

    def __init__(self, leasing: Leasing, lease: Lease) -> None:
        self._leasing = leasing
        self._lease = lease

    def run(self, tx: Transaction) -> Any:
        lease = leases.at_row(tx, self._lease.row)
        if lease is not None and lease.state == "offered" and lease.generation == self._lease.generation:
            self._leasing.undelivered(tx, lease, "worker_gone", terminal=False, actor="transport:pull")

    def succeed(self, result: Any) -> None: ...

    def fail(self, error: Exception) -> None:
        """The offer then runs out by the clock."""
