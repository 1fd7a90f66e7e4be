"""One client's connection: requests in, answers out, in order. It never blocks and never awaits its client."""

import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from coordd.control.peer import Peer
from coordd.domain.errors import CoordError, Draining
from coordd.domain.lease import Lease
from coordd.protocol.errors import Malformed
from coordd.protocol.framing import RequestParser
from coordd.protocol.replies import encode, encode_error, encode_malformed

if TYPE_CHECKING:
    from coordd.control.server import Server

log = logging.getLogger(__name__)

RECEIVED_BYTES: Final = 4096
DRAIN_LOOK_S: Final = 0.005
PIPELINED: Final = 256  # requests in flight; more are read once these are answered


class Call(Protocol):
    """A request that waits for its answer. `start` is called when it has become the oldest unanswered."""

    reply: bytes | None

    def start(self) -> None: ...


class Connection:
    __slots__ = (
        "begun_at",
        "calls",
        "closed",
        "dirty",
        "ended",
        "fd",
        "heard_at",
        "offers",
        "output",
        "parser",
        "peer",
        "reading",
        "scopes",
        "server",
        "sock",
        "started",
        "streaming",
        "writing",
    )

    def __init__(self, server: "Server", sock: socket.socket, peer: Peer, now: float) -> None:
        self.server = server
        self.sock = sock
        self.fd = sock.fileno()
        self.peer = peer
        self.parser = RequestParser()
        self.calls: deque[Call] = deque()
        self.started: Call | None = None  # the oldest call, once it has been told
        self.output: list[bytes] = []
        self.offers: list[Lease] = []  # committed offers that may not have reached the client yet
        self.heard_at = now
        self.begun_at: float | None = None  # when the request that is not complete yet was begun
        self.scopes: set[trio.CancelScope] = set()  # of the calls that have tasks
        self.reading = True
        self.writing = False
        self.dirty = False
        self.ended = False  # nothing more is read: the client or the framing ended it
        self.streaming = False
        self.closed = False

    def receive(self, now: float) -> None:
        """Read what has come, and begin the requests that are complete."""
        try:
            data = self.sock.recv(RECEIVED_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.end()
            return
        self.heard_at = now
        dispatch = self.server.dispatch
        items = self.parser.feed(data)
        if not self.parser.partial:
            self.begun_at = None
        elif items or self.begun_at is None:
            self.begun_at = now
        for item in items:
            if type(item) is Malformed:
                self.calls.append(Answered(encode_malformed(item)))
                self.deliver()
                if item.fatal:
                    self.end()
            else:
                dispatch(self, item)
        if len(self.calls) >= PIPELINED:
            self._set_interest()

    def refuse(self, code: str, message: str) -> None:
        """Answer a connection-level error out of turn, and end."""
        self.output.append(encode_malformed(Malformed(code, message, fatal=True)))
        self.calls.clear()
        self.end()
        self.flush()

    def deliver(self) -> None:
        """Hand over the answers that are complete, oldest first, and tell the call that is next."""
        calls = self.calls
        while calls:
            call = calls[0]
            reply = call.reply
            if reply is None:
                if self.started is not call:
                    self.started = call
                    call.start()
                    continue
                break
            self.output.append(reply)
            calls.popleft()
        if not self.dirty:
            self.dirty = True
            self.server.dirty.append(self)

    def flush(self) -> None:
        """Send what is to be sent, as far as the client takes it."""
        self.dirty = False
        if self.closed:
            return
        output = self.output
        if output:
            data = output[0] if len(output) == 1 else b"".join(output)
            try:
                sent = self.sock.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                self.close()
                return
            output.clear()
            if sent == len(data):
                self.offers.clear()
            else:
                output.append(data[sent:])
                if len(data) - sent > self.server.limits.output_bytes:
                    log.info("a client does not read its answers; its connection ends")
                    self.close()
                    return
        if self.ended and not output and not self.calls:
            self.close()
        elif self.writing or output or not self.reading:
            self._set_interest()

    def push(self, data: bytes) -> None:
        """Send a line that is no answer: a streamed event."""
        if not self.closed:
            self.output.append(data)
            if not self.dirty:
                self.dirty = True
                self.server.dirty.append(self)

    async def drained(self) -> None:
        """Wait until the client has taken what was sent to it, or is gone."""
        self.flush()
        while self.output and not self.closed:
            await trio.sleep(DRAIN_LOOK_S)

    def end(self) -> None:
        """The client sends nothing more. What it asked is still answered, but nobody waits for it."""
        if self.ended:
            return
        self.ended = True
        self.cancel_tasks()
        self.server.connection_ended(self)
        if not self.calls and not self.output:
            self.close()
        else:
            self._set_interest()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if not self.ended:
            self.ended = True
            self.server.connection_ended(self)
        self.cancel_tasks()
        self.server.forget(self)
        self.sock.close()
        if self.offers:
            self.server.offers_lost(self.offers)

    def cancel_tasks(self) -> None:
        for scope in self.scopes:
            scope.cancel()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way on it, and nothing depends on it."""
        return not (self.calls or self.output or self.parser.partial or self.streaming)

    def _set_interest(self) -> None:
        if self.closed:
            return
        read = not self.ended and len(self.calls) < PIPELINED
        write = bool(self.output)
        if (read, write) != (self.reading, self.writing):
            self.reading, self.writing = read, write
            self.server.readiness.want(self.fd, read=read, write=write)


class Answered:
    """A request whose answer needed no work."""

    __slots__ = ("reply",)

    def __init__(self, reply: bytes) -> None:
        self.reply: bytes | None = reply

    def start(self) -> None: ...


class WriteCall:
    """A unit of the store's next group: see `coordd.store.writer.Unit`."""

    __slots__ = ("connection", "handler", "reply", "request")
    writes = True

    def __init__(self, connection: Connection, request: Any, handler: Callable[..., Any]) -> None:
        self.connection = connection
        self.request = request
        self.handler = handler
        self.reply: bytes | None = None

    def start(self) -> None: ...

    def run(self, tx: Any) -> Any:
        return self.handler(self.connection.server.services, tx, self.request, self.connection)

    def succeed(self, result: Any) -> None:
        self.reply = encode(result, self.request.id)
        self.connection.deliver()

    def fail(self, error: Exception) -> None:
        self.reply = refusal(error, self.request)
        self.connection.deliver()


class ReadCall(WriteCall):
    """Answered when its turn comes, so that a client reads what it has just written."""

    __slots__ = ()
    writes = False

    def start(self) -> None:
        try:
            self.reply = encode(
                self.handler(self.connection.server.services, self.request, self.connection), self.request.id
            )
        except Exception as error:
            self.reply = refusal(error, self.request)


class TaskCall(WriteCall):
    """Has a task of its own, which ends with the connection."""

    __slots__ = ()
    writes = False

    def start(self) -> None:
        self.connection.server.spawn(self)

    async def work(self) -> Any:
        return await self.handler(self.connection.server.services, self.request, self.connection)

    async def serve(self) -> None:
        connection = self.connection
        with trio.CancelScope() as scope:
            connection.scopes.add(scope)
            if connection.ended:
                scope.cancel()
            try:
                self.succeed(await self.work())
            except Exception as error:
                self.fail(error)
            finally:
                connection.scopes.discard(scope)
        if self.reply is None:  # cancelled: nobody waits for an answer, unless it was the daemon that had to stop
            draining = Draining("coordd is stopping; ask again when it is back")
            self.reply = refusal(draining, self.request) if connection.server.draining else b""
            connection.deliver()
        connection.server.flush()


def refusal(error: Exception, request: Any) -> bytes:
    """The answer for an exception. Anything but a refusal is our bug: logged with its traceback, and said to be one."""
    if isinstance(error, CoordError):
        return encode_error(error.code, str(error), error.retryable, error.detail, request.id)
    op = type(request).__struct_config__.tag
    log.error("op %s failed", op, exc_info=error)
    return encode_error(
        "internal", f"a bug in coordd stopped `{op}`; see `coordctl logs` and report it", False, {}, request.id
    )
