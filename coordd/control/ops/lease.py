"""What workers do with the lease they hold."""

from typing import Any, Final

from coordd.control.connection import Connection, WriteCall
from coordd.control.ops.context import Services
from coordd.domain.anchor import Anchor
from coordd.domain.checkpoint import Checkpoint as Document
from coordd.domain.lease import LIVE
from coordd.protocol.instants import rfc3339
from coordd.protocol.replies import CheckpointReply, HeldReply
from coordd.protocol.requests import Ack, Checkpoint, Complete, Fail, Pid, Renew
from coordd.services.leasing import Held


def held_reply(services: Services, tx: Any, held: Held) -> HeldReply:
    """The lease as it stands; `expires_at` is the deadline as the wall clock would show it now."""
    lease = held.lease
    state = lease.state
    if state in LIVE:
        left_ms = lease.deadline_ms - tx.lease_ms
        return HeldReply(
            lease.lease_id,
            lease.repo,
            lease.generation,
            state,
            rfc3339(tx.wall_ms + left_ms),
            left_ms,
            services.renewal_ms,
            repeated=held.repeated,
        )
    retry_at = None
    if state == "retry_wait":
        retry_at = rfc3339(tx.wall_ms + lease.deadline_ms - tx.lease_ms)
    return HeldReply(
        lease.lease_id,
        lease.repo,
        lease.generation,
        state,
        retry_at=retry_at,
        reason=lease.reason or None,
        repeated=held.repeated,
    )


def ack(services: Services, tx: Any, request: Ack, connection: Connection) -> HeldReply:
    """`ack`: take an offer. Errors: unknown_lease, wrong_repo, stale_generation, lease_taken, not_offered,
    lease_expired, lease_over, anchor_gone, anchor_foreign.
    """
    peer = connection.peer
    held = services.leasing.ack(
        tx,
        request.lease_id,
        repo=request.repo,
        generation=request.generation,
        worker=request.worker or "",
        anchor=_anchor(services, request.anchor, connection),
        via=connection,
        actor=f"worker:{request.worker}" if request.worker else f"peer:{peer.uid}/{peer.pid}",
    )
    reply = held_reply(services, tx, held)
    return HeldReply(
        reply.lease_id,
        reply.repo,
        reply.generation,
        reply.state,
        reply.expires_at,
        reply.expires_in_ms,
        reply.renew_every_ms,
        repeated=reply.repeated,
        source=held.lease.source,
        source_name=held.lease.source_name,
        item_id=held.lease.item_id,
        attempt=held.lease.attempt,
    )


def renew(services: Services, tx: Any, request: Renew, connection: Connection) -> HeldReply:
    """`renew`: one ttl more. Errors: unknown_lease, wrong_repo, stale_generation, not_offered, not_acknowledged,
    lease_expired, lease_over.
    """
    held = services.leasing.renew(tx, request.lease_id, repo=request.repo, generation=request.generation)
    return held_reply(services, tx, held)


def complete(services: Services, tx: Any, request: Complete, connection: Connection) -> HeldReply:
    """`complete`: the work is done. Errors: as `renew`."""
    held = services.leasing.complete(tx, request.lease_id, repo=request.repo, generation=request.generation)
    return held_reply(services, tx, held)


def fail(services: Services, tx: Any, request: Fail, connection: Connection) -> HeldReply:
    """`fail`: the worker cannot. Errors: as `renew`."""
    held = services.leasing.fail(
        tx,
        request.lease_id,
        repo=request.repo,
        generation=request.generation,
        reason=request.reason,
        retry=request.retry,
    )
    return held_reply(services, tx, held)


def checkpoint(services: Services, tx: Any, request: Checkpoint, connection: Connection) -> CheckpointReply:
    """`checkpoint`: end this lease and leave word for the next. Errors: as `renew`; checkpoint_too_large."""
    document = request.checkpoint
    continued = services.leasing.checkpoint(
        tx,
        request.lease_id,
        repo=request.repo,
        generation=request.generation,
        document=Document()
        if document is None
        else Document(document.summary, document.files_changed, document.next_action, document.blocked_reason),
    )
    lease, following = continued.lease, continued.continuation
    return CheckpointReply(
        lease.lease_id,
        lease.repo,
        lease.generation,
        lease.state,
        continuation=None if following is None else following.lease_id,
        reason=lease.reason or None,
        repeated=continued.repeated,
    )


def _anchor(services: Services, named: str | Pid | None, connection: Connection) -> Anchor | None:
    if named is None:
        return None
    if isinstance(named, Pid):
        return services.identify(named.pid)  # type: ignore[no-any-return]
    behind: Anchor = services.identify(connection.peer.pid)
    return behind if named == "peer" else Anchor("connection", behind.pid, behind.start, behind.boot)


HANDLERS: Final[dict[type[WriteCall], dict[type, Any]]] = {
    WriteCall: {Ack: ack, Renew: renew, Complete: complete, Fail: fail, Checkpoint: checkpoint}
}
