"""The Unix socket server: one task over an inner set of descriptors, that reads, hands groups to the store, and writes.

A task per request costs five times as much; only ops that wait get one. Source:
docs/architecture.md#one-task-for-all-connections
"""

import logging
import os
import socket
from collections.abc import Callable
from typing import Any, Final, Protocol

import trio

from coordd.config.settings import Control
from coordd.control.connection import Connection, TaskCall
from coordd.control.ops import KINDS
from coordd.control.ops.context import Services
from coordd.control.peer import Peer, PeerUnknown, peer_of
from coordd.control.readiness import Readiness
from coordd.domain.lease import Lease
from coordd.protocol.errors import Malformed
from coordd.protocol.replies import encode_malformed

log = logging.getLogger(__name__)

ACCEPTED_AT_ONCE: Final = 64
SWEEP_S: Final = 1.0
ROUNDS: Final = 4
AWAY_S: Final = 0.002
LINGER_S: Final = 0.001  # epoll's shortest
LINGERS: Final = 8  # turns before the other tasks have theirs


class Committer(Protocol):
    """The store, as far as the server knows it."""

    def submit(self, unit: Any) -> None: ...

    def pump(self) -> None: ...

    def take_bell(self) -> int | None:
        """A descriptor that is readable when a group has been committed aside; `answered` is to be called then."""
        ...

    def give_bell_back(self) -> None: ...

    @property
    def in_flight(self) -> bool:
        """Whether a group is being committed aside."""
        ...

    def answered(self) -> None: ...


class Server:
    def __init__(
        self,
        listener: socket.socket,
        services: Services,
        committer: Committer,
        limits: Control,
        *,
        uid: int | None = None,
        offers_lost: Callable[[list[Lease]], None],
        connection_ended: Callable[[Connection], None],
        peer_of: Callable[[socket.socket], Peer] = peer_of,
    ) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._listening = True
        self._accepting = True
        self.services = services
        self._committer = committer
        self._submit = committer.submit
        self.limits = limits  # replaced on reload
        self._uid = os.geteuid() if uid is None else uid
        self.offers_lost = offers_lost
        self.connection_ended = connection_ended
        self._peer_of = peer_of
        self.readiness = Readiness()
        self.readiness.add(listener.fileno())
        self._bell: int | None = None
        self.connections: dict[int, Connection] = {}
        self.dirty: list[Connection] = []
        self._nursery: trio.Nursery | None = None
        self._now = 0.0
        self._quiet = trio.Event()
        self.draining = False

    async def run(self) -> None:
        """Serve until cancelled; `drain` first to answer what is in flight."""
        readable = trio.lowlevel.wait_readable
        statistics = trio.lowlevel.current_statistics
        fd = self.readiness.fileno()
        self._bell = bell = self._committer.take_bell()
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._sweep)
                while True:
                    if bell is not None and self._committer.in_flight:
                        with trio.move_on_after(AWAY_S):
                            await readable(bell)
                            self._committer.answered()
                        self.turn(self.readiness.poll())
                        continue
                    await readable(fd)
                    ready = self.readiness.poll()
                    for _ in range(LINGERS):
                        self.turn(ready)
                        # Who has just been answered often asks again at once, and the scheduler costs as much as an op.
                        if len(ready) > 1 or statistics().tasks_runnable:
                            break
                        ready = self.readiness.poll(LINGER_S)
                        if not ready:
                            break
        finally:
            self._committer.give_bell_back()
            for connection in list(self.connections.values()):
                connection.close()
            self.readiness.close()

    def turn(self, ready: list[tuple[int, int]]) -> None:
        """Read from the descriptors that are ready, commit what was asked, and write the answers."""
        readiness, connections = self.readiness, self.connections
        self._now = now = trio.current_time()
        # Whoever has asked by the time the others have been read goes into the same commit: nobody is waited for, and
        # the commit is what costs.
        for _ in range(ROUNDS):
            for fd, mask in ready:
                connection = connections.get(fd)
                if connection is None:
                    if self._listening:
                        self._accept()
                    continue
                if readiness.writable(mask):
                    connection.flush()
                if readiness.readable(mask) and not connection.closed:
                    if connection.ended:
                        connection.close()  # hung up for good
                    else:
                        connection.receive(now)
            if len(ready) < 2:
                break
            ready = readiness.poll()
        self._committer.pump()
        self.flush()

    def flush(self) -> None:
        """Send the answers that have been made since; also called whenever a group was committed."""
        while self.dirty:
            dirty, self.dirty = self.dirty, []
            for connection in dirty:
                connection.flush()
        if self.draining:
            self._check_quiet()

    def dispatch(self, connection: Connection, request: Any) -> None:
        make, handler = KINDS[type(request)]
        call = make(connection, request, handler)
        connection.calls.append(call)
        if call.writes:
            self._submit(call)
        elif len(connection.calls) == 1:
            connection.deliver()

    def spawn(self, call: TaskCall) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(call.serve)

    def forget(self, connection: Connection) -> None:
        if self.connections.pop(connection.fd, None) is not None:
            self.readiness.remove(connection.fd)

    async def drain(self, grace_s: float) -> None:
        """Accept and read nothing more, answer what is in flight, and end all connections.

        Workers that wait are told `draining`; streams end. What is not answered within the grace is not answered.
        """
        self.draining = True
        self._stop_listening()
        for connection in list(self.connections.values()):
            connection.end()
        self._check_quiet()
        with trio.move_on_after(grace_s):
            await self._quiet.wait()
        for connection in list(self.connections.values()):
            connection.close()

    def _check_quiet(self) -> None:
        if not any(connection.calls or connection.output for connection in self.connections.values()):
            self._quiet.set()

    def _stop_listening(self) -> None:
        if self._listening:
            self._listening = False
            if self._accepting:
                self.readiness.remove(self._listener.fileno())
            self._listener.close()

    def _accept(self) -> None:
        # All that wait: one per turn would queue new clients behind commits.
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                sock, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # out of descriptors: the oldest idle one has to go
                if self._make_room():
                    continue
                # The listener stays ready, so to go on waiting for it would spin: it is looked at again by the sweep.
                log.warning("no connection can be accepted for a moment: %s", error)
                self._accepting = False
                self.readiness.remove(self._listener.fileno())
                return
            sock.setblocking(False)
            refused = self._admit(sock)
            if refused is not None:
                try:
                    sock.send(encode_malformed(refused))
                except OSError:
                    log.debug("a refused client did not wait for the reason")
                sock.close()

    def _admit(self, sock: socket.socket) -> Malformed | None:
        try:
            peer = self._peer_of(sock)
        except PeerUnknown as error:
            return Malformed("peer_unknown", str(error), fatal=True)
        if peer.uid != self._uid:
            log.warning("a connection of uid %d was refused", peer.uid)
            return Malformed("wrong_user", "this coordd serves another user; start your own", fatal=True)
        if len(self.connections) >= self.limits.max_connections and not self._make_room():
            return Malformed(
                "too_many_connections",
                f"{self.limits.max_connections} connections are open and none of them is idle; "
                "raise control.max_connections, or end some workers",
                fatal=True,
            )
        connection = Connection(self, sock, peer, self._now)
        self.connections[connection.fd] = connection
        self.readiness.add(connection.fd)
        return None

    def _make_room(self) -> bool:
        """End the connection that has been idle longest, if any is, so that a flood never locks the operator out."""
        idle = [c for c in self.connections.values() if c.is_idle and not self.services.keeper.depends_on(c)]
        if not idle:
            return False
        oldest = min(idle, key=lambda connection: connection.heard_at)
        oldest.refuse("idle", "another client needs the connection; connect again")
        oldest.close()
        return True

    async def _sweep(self) -> None:
        while True:
            await trio.sleep(SWEEP_S)
            self.sweep(trio.current_time())

    def sweep(self, now: float) -> None:
        """End connections that are slow or idle for too long."""
        limits = self.limits
        if self._listening and not self._accepting:
            self._accepting = True
            self.readiness.add(self._listener.fileno())
        for connection in list(self.connections.values()):
            silent_s = now - connection.heard_at
            if connection.begun_at is not None and now - connection.begun_at > limits.request_s:
                connection.refuse("too_slow", f"a request has to be sent within {limits.request_s:g} seconds")
            elif connection.is_idle and silent_s > limits.idle_s and not self.services.keeper.depends_on(connection):
                connection.refuse("idle", f"nothing was asked for {limits.idle_s:g} seconds; connect again")
            elif connection.output and silent_s > limits.idle_s:
                connection.close()
