"""Values of the services as the replies show them."""

from coordd.control.ops.context import Services
from coordd.domain.lease import LIVE
from coordd.domain.receipt import Receipt
from coordd.protocol.instants import rfc3339
from coordd.protocol.replies import LeaseView, ReceiptView
from coordd.services.looking import LeaseLook


def lease_view(services: Services, look: LeaseLook) -> LeaseView:
    lease = look.lease
    instant = None
    if lease.deadline_ms:
        instant = rfc3339(services.clock.wall_ms() + lease.deadline_ms - services.clock.lease_ms())
    live = lease.state in LIVE
    return LeaseView(
        lease.lease_id,
        lease.repo,
        lease.state,
        lease.reason or None,
        lease.source,
        lease.source_name,
        lease.source_id,
        lease.item_id,
        lease.generation,
        lease.attempt,
        lease.attempts_allowed,
        lease.priority,
        lease.worker or None,
        lease.anchor or None,
        rfc3339(lease.accepted_at_ms),
        rfc3339(look.since_ms),
        instant if live else None,
        None if live else instant,
        look.over,
        look.parent_id,
    )


def receipt_view(receipt: Receipt) -> ReceiptView:
    return ReceiptView(
        receipt.seq,
        receipt.lease_id,
        receipt.repo,
        receipt.event,
        receipt.from_state or None,
        receipt.to_state,
        rfc3339(receipt.at_ms),
        receipt.generation,
        receipt.attempt,
        receipt.deadline_ms,
        receipt.reason or None,
        receipt.actor,
        receipt.config,
        receipt.previous,
    )
