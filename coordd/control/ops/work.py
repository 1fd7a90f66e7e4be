"""`next`: a worker asks for work, and waits for it."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
import trio

from coordd.control.connection import Connection, TaskCall, WriteCall
from coordd.control.ops.context import Services
from coordd.domain.offer import Offer, prompt
from coordd.protocol.instants import rfc3339
from coordd.protocol.replies import OfferReply, OfferView, encode
from coordd.protocol.requests import Next


def offer_reply(services: Services, offer: Offer | None) -> OfferReply:
    if offer is None:
        return OfferReply(None, None, None)
    lease = offer.lease
    left_ms = lease.deadline_ms - services.clock.lease_ms()
    view = OfferView(
        lease.lease_id,
        lease.generation,
        lease.repo,
        offer.path,
        lease.source,
        lease.source_name,
        lease.source_id,
        lease.source_revision,
        lease.item_id,
        lease.attempt,
        rfc3339(services.clock.wall_ms() + left_ms),
        left_ms,
        services.renewal_ms,
        prompt(lease),
        None if offer.parent_checkpoint is None else msgspec.Raw(offer.parent_checkpoint),
    )
    return OfferReply(view, lease.lease_id, lease.generation)


class NextCall(TaskCall):
    """`next`: at once if there is work, else in a task that waits for it. Errors: unknown_repo, draining."""

    __slots__ = ("waited",)
    writes = True

    def __init__(self, connection: Connection, request: Next, handler: Callable[..., Any]) -> None:
        super().__init__(connection, request, handler)
        self.waited = False

    def start(self) -> None:
        """It has been in the store's queue since it was read."""

    async def work(self) -> Offer | None:
        return await wait(self.connection.server.services, self.request)

    def succeed(self, result: Offer | None) -> None:
        connection = self.connection
        if result is not None:
            if connection.closed:
                connection.server.offers_lost([result.lease])
                return
            connection.offers.append(result.lease)
        elif self.request.wait > 0 and not self.waited and not connection.ended:
            self.waited = True
            connection.server.spawn(self)
            return
        self.reply = encode(offer_reply(connection.server.services, result), self.request.id)
        connection.deliver()


def find(services: Services, tx: Any, request: Next, connection: Connection) -> Offer | None:
    return services.offering.next(tx, request.repos, request.worker)


async def wait(services: Services, request: Next) -> Offer | None:
    """Ask again at every hint, until there is an offer or the wait is over."""
    repos = None if request.repos is None else frozenset(request.repos)
    seeker = services.board.join(repos)
    offer: Offer | None = None
    try:
        with trio.move_on_after(request.wait):
            while offer is None:
                offer = await services.write(lambda tx: services.offering.next(tx, request.repos, request.worker))
                if offer is None:
                    await seeker.woken()
    finally:
        services.board.leave(seeker)
    return offer


HANDLERS: Final[dict[type[WriteCall], dict[type, Any]]] = {NextCall: {Next: find}}
