"""The daemon: in which order things begin and end, and what each service is given."""

import logging
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable
from functools import partial

import msgspec
import trio

from coordd.config.load import differences
from coordd.config.settings import Exec, Settings, Source
from coordd.control.ops.context import About, Services
from coordd.control.server import Server
from coordd.domain.anchor import Anchor
from coordd.domain.errors import CoordError
from coordd.liveness.clocks import AWAKE, SleepDetector, SystemClock, offset_for
from coordd.liveness.process import ProcessWatch, boot_id, identify, is_running
from coordd.services.core import Core
from coordd.services.dispatching import Dispatcher
from coordd.services.observing import Observer
from coordd.sources.base import WorkSource
from coordd.sources.kinds import open_source
from coordd.store import meta
from coordd.store.backup import snapshot
from coordd.store.store import Store
from coordd.store.transaction import Transaction
from coordd.store.verify import verify
from coordd.transports.exec import ExecTransport

log = logging.getLogger(__name__)

PATHS_S = 15.0
HEALTH_S = 5.0


class Kept(msgspec.Struct, frozen=True):
    """The lease clock as the last run left it."""

    boot: str
    offset_ms: int
    seen_ms: int


class App:
    """One run of the daemon over a store that is open and locked."""

    def __init__(
        self,
        *,
        store: Store,
        clock: SystemClock,
        listener: socket.socket,
        settings: Settings,
        config: Callable[[], Settings],
        version: str,
        socket_path: str,
        state_dir: str,
    ) -> None:
        self._store = store
        self._config = config
        self._boot = boot_id()
        self._kept = self._read_clock()
        self.clock = clock
        clock.offset_ms = self._offset()
        self._watch = ProcessWatch(lambda key: self.core.keeper.process_ended(key))
        self.core = Core(
            store=store, clock=self.clock, watch=self._watch, slept_ms=SleepDetector().slept_ms, settings=settings
        )
        self._exec = ExecTransport(
            log_dir=os.path.join(state_dir, "logs", "exec"),
            environ=dict(os.environ),
            socket_path=socket_path,
            settings_of=self._exec_settings,
            identify=self._identify,
            is_running=lambda anchor: is_running(anchor, self._boot),
            freed=self.core.board.hint,
        )
        self._dispatcher = Dispatcher(core=self.core, transport=self._exec)
        self.core.board.pushed = self._dispatcher.hint
        self.core.keeper.how_it_ended = self._exec.exit_reason
        self.core.taken_away = self._exec.ended
        self.core.operating.stop = self.stop
        self.core.operating.reload = self.reload
        self._stopping = trio.Event()
        self._why = ""
        self.reloaded: Callable[[Settings], None] = lambda settings: None  # a new configuration is in force
        self._sources: dict[str, tuple[Source, trio.CancelScope]] = {}
        self._nursery: trio.Nursery
        executable = os.stat(sys.executable)
        self.services = Services(
            clock=self.clock,
            leasing=self.core.leasing,
            offering=self.core.offering,
            board=self.core.board,
            gates=self.core.gates,
            keeper=self.core.keeper,
            stream=self.core.stream,
            looking=self.core.looking,
            explaining=self.core.explaining,
            operating=self.core.operating,
            renewal_ms=round(settings.leases.renewal_s * 1000),
            identify=self._identify,
            write=store.write,
            read=store.read,
            verify=partial(store.read_aside, verify),
            backup=self._backup,
            about=About(
                version,
                secrets.token_hex(8),
                os.getpid(),
                self.clock.wall_ms(),
                socket_path,
                state_dir,
                lambda: _replaced(executable),
            ),
        )
        self.server = Server(
            listener,
            self.services,
            store,
            settings.control,
            offers_lost=self.core.offers_lost,
            connection_ended=self.core.keeper.connection_ended,
        )
        store.writer.settled = self.server.flush

    async def run(
        self,
        ready: Callable[[], None] = lambda: None,
        stopping: Callable[[], None] = lambda: None,
        *,
        until_idle: bool = False,
    ) -> None:
        """Serve until `stop`; then drain: no new work, requests in flight answered, leases kept."""
        async with trio.open_nursery() as writing:
            writing.start_soon(self._store.run)
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._watch.run)
                nursery.start_soon(self._exec.run)
                await trio.lowlevel.checkpoint()
                living = await self.core.recover(
                    self._boot, rebooted=self._kept is not None and self._kept.boot != self._boot
                )
                for lease, anchor in living:
                    if self._exec_settings(lease.repo) is not None:
                        self._exec.adopt(lease, anchor)
                nursery.start_soon(self._dispatcher.run)
                await self._store.write(self._keep_clock)
                nursery.start_soon(self.core.reaper.run)
                nursery.start_soon(self.core.keeper.run)
                nursery.start_soon(self._look_at_paths)
                self._open_sources(self.core.settings)
                nursery.start_soon(self.server.run)
                ready()
                log.info("coordd %s serves %s", self.services.about.version, self.services.about.socket)
                if until_idle:
                    nursery.start_soon(self._stop_when_idle)
                await self._stopping.wait()
                log.info("stopping: %s", self._why)
                stopping()
                self.core.gates.draining = self.core.keeper.draining = True
                await self.server.drain(self.core.settings.daemon.drain_s)
                nursery.cancel_scope.cancel()
            await self._store.write(self._keep_clock)
            writing.cancel_scope.cancel()

    def stop(self, why: str) -> None:
        """Begin to drain."""
        self._why = self._why or why
        self._stopping.set()

    def reload(self) -> list[str]:
        """Read the configuration again, and say what changed. Raises ConfigRefused; the old one then stays."""
        settings = self._config()
        changed = differences(self.core.settings, settings)
        if changed:
            log.info("configuration reloaded: %s", ", ".join(changed))
        self.core.apply(settings)
        self.server.limits = settings.control
        self.services.renewal_ms = round(settings.leases.renewal_s * 1000)
        self._open_sources(settings)
        self.reloaded(settings)
        return changed

    def reload_or_say_why(self) -> None:
        """For a signal, which gets no answer but the log."""
        try:
            if not self.reload():
                log.info("configuration reloaded: nothing changed")
        except CoordError as error:
            log.warning("the configuration stays as it was: %s", error)

    async def is_healthy(self) -> bool:
        """Whether the store still takes writes; the loop that asks is the loop that serves."""
        with trio.move_on_after(HEALTH_S) as scope:
            await self._store.write(lambda tx: None)
        return not scope.cancelled_caught

    def _open_sources(self, settings: Settings) -> None:
        """Begin what is new, end what is gone, and decide everything anew where the rules have changed."""
        wanted = {source.name: source for source in settings.source}
        for name, (source, scope) in list(self._sources.items()):
            if wanted.get(name) != source:
                scope.cancel()
                del self._sources[name]
                self.core.observers.pop(name, None)
                self.core.gates.stale_sources.discard(name)
        for name, source in wanted.items():
            if name in self._sources:
                self.core.observers[name].look(everything=True)
                continue
            opened = open_source(source)
            observer = self.core.observe(opened, name)
            scope = trio.CancelScope()
            self._sources[name] = (source, scope)
            self._nursery.start_soon(self._observe, observer, opened, scope)

    async def _observe(self, observer: Observer, source: WorkSource, scope: trio.CancelScope) -> None:
        try:
            with scope:
                await observer.run()
        finally:
            source.close()

    async def _look_at_paths(self) -> None:
        while True:
            await trio.sleep(PATHS_S)
            await self.core.look_at_paths()

    async def _stop_when_idle(self) -> None:
        """Twice idle with a complete look at every source between is idle: what a worker did last is seen by then."""
        while True:
            await trio.sleep(0.1)
            if not (self.core.is_idle() and self._dispatcher.is_idle):
                continue
            passes = {name: observer.passes for name, observer in self.core.observers.items()}
            for observer in self.core.observers.values():
                observer.look()
            while any(self.core.observers[name].passes <= count for name, count in passes.items()):
                await trio.sleep(0.05)
            if self.core.is_idle():
                self.stop("all work is done")
                return

    def _exec_settings(self, repo: str) -> Exec | None:
        known = self.core.offering.repos.get(repo)
        return None if known is None else known.exec

    def _identify(self, pid: int) -> Anchor:
        return identify(pid, uid=os.getuid())

    async def _backup(self, path: str) -> int:
        return await trio.to_thread.run_sync(snapshot, self._store.path, path)

    def _read_clock(self) -> Kept | None:
        text = self._store.read(lambda connection: meta.get(connection, "clock"))
        return None if text is None else msgspec.json.decode(text, type=Kept)

    def _offset(self) -> int:
        kept = self._kept
        return offset_for(
            self._boot,
            None if kept is None else kept.boot,
            0 if kept is None else kept.offset_ms,
            0 if kept is None else kept.seen_ms,
            wall_ms=time.time_ns() // 1_000_000,
            awake_ms=time.clock_gettime_ns(AWAKE) // 1_000_000,
        )

    def _keep_clock(self, tx: Transaction) -> None:
        kept = Kept(self._boot, self.clock.offset_ms, self.clock.lease_ms())
        meta.put(tx, "clock", msgspec.json.encode(kept).decode())


def _replaced(executable: os.stat_result) -> bool:
    """Whether the program on disk is another than the one that runs."""
    try:
        now = os.stat(sys.executable)
    except OSError:
        return True
    return (now.st_dev, now.st_ino) != (executable.st_dev, executable.st_ino)
