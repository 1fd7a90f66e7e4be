"""What operators do."""

from typing import Any, Final

from coordd.control.connection import Connection, ReadCall, WriteCall
from coordd.control.ops.context import Services
from coordd.control.ops.lease import held_reply
from coordd.protocol.replies import Done, HeldReply, ReloadReply
from coordd.protocol.requests import Cancel, Pause, Reload, Resume, Retry, Stop


def actor(connection: Connection) -> str:
    """Who it was, by the kernel's word: it stands in the receipt."""
    return f"operator:{connection.peer.uid}/{connection.peer.pid}"


def pause(services: Services, tx: Any, request: Pause, connection: Connection) -> Done:
    """`pause`: offer nothing more. Errors: unknown_repo."""
    services.operating.pause(tx, request.repo, actor(connection))
    return Done()


def resume(services: Services, tx: Any, request: Resume, connection: Connection) -> Done:
    """`resume`: offer again. Errors: unknown_repo."""
    services.operating.resume(tx, request.repo, actor(connection))
    return Done()


def cancel(services: Services, tx: Any, request: Cancel, connection: Connection) -> HeldReply:
    """`cancel`: stop a lease that is not over. Errors: unknown_lease, lease_over."""
    held = services.operating.cancel(tx, request.lease_id, request.reason, actor(connection))
    return held_reply(services, tx, held)


def retry(services: Services, tx: Any, request: Retry, connection: Connection) -> HeldReply:
    """`retry`: a new lease for the work of a stopped one. Errors: unknown_lease, not_stopped, superseded."""
    return held_reply(services, tx, services.operating.retry(tx, request.lease_id, actor(connection)))


def stop(services: Services, request: Stop, connection: Connection) -> Done:
    """`stop`: end the daemon; leases are kept."""
    services.operating.stop(actor(connection))
    return Done()


def reload(services: Services, request: Reload, connection: Connection) -> ReloadReply:
    """`reload`: read the configuration again. Errors: config_refused; the old one then stays."""
    return ReloadReply(tuple(services.operating.reload()))


HANDLERS: Final[dict[type[WriteCall], dict[type, Any]]] = {
    WriteCall: {Pause: pause, Resume: resume, Cancel: cancel, Retry: retry},
    ReadCall: {Stop: stop, Reload: reload},
}
