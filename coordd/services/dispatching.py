"""Wakes workers in repositories whose transport is pushed to: offer, deliver, and tie the lease to what was started."""

import logging

import trio

from coordd.domain.errors import CoordError, StoreUnavailable
from coordd.domain.lease import LIVE, Lease
from coordd.domain.offer import Offer
from coordd.services.core import Core
from coordd.store import leases
from coordd.store.transaction import Transaction
from coordd.transports.base import Delivery, Transport

log = logging.getLogger(__name__)

RETRY_S = 1.0


class Dispatcher:
    def __init__(self, *, core: Core, transport: Transport) -> None:
        self._core = core
        self._transport = transport
        self._hinted: dict[str, None] = {}
        self._bell = trio.Event()
        self.under_way = 0  # wakes being sent

    def hint(self, repo: str) -> None:
        """Something may be offerable in a repository."""
        known = self._core.offering.repos.get(repo)
        if known is not None and known.transport == self._transport.kind:
            self._hinted[repo] = None
            self._bell.set()

    @property
    def is_idle(self) -> bool:
        return not self._hinted and self.under_way == 0

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                await self._bell.wait()
                self._bell = trio.Event()
                while self._hinted:
                    repo = next(iter(self._hinted))
                    del self._hinted[repo]
                    nursery.start_soon(self.wake, repo)

    async def wake(self, repo: str) -> None:
        """Offer what is next in a repository, and send the wake."""
        if self._transport.is_busy(repo):
            return  # it hints again when it is free
        self.under_way += 1
        try:
            offer = await self._core.store.write(lambda tx: self._offer(tx, repo))
            if offer is None:
                return
            delivery = await self._transport.deliver(offer)
            await self._core.store.write(lambda tx: self._delivered(tx, offer.lease, delivery))
        except StoreUnavailable as error:
            log.warning("repository %s could not be served: %s", repo, error)
            await trio.sleep(RETRY_S)
            self.hint(repo)
        except CoordError as error:
            log.warning("repository %s could not be served: %s", repo, error)
        finally:
            self.under_way -= 1

    def _offer(self, tx: Transaction, repo: str) -> Offer | None:
        first = self._core.offering.candidate(tx, repo, self._transport.kind)
        if first is None:
            return None
        return self._core.offering.offer(tx, first, worker="", actor=f"transport:{self._transport.kind}")

    def _delivered(self, tx: Transaction, offered: Lease, delivery: Delivery) -> None:
        lease = leases.at_row(tx, offered.row)
        if lease is None or lease.generation != offered.generation or lease.state not in LIVE:
            return  # its worker was faster than this, or it was taken away meanwhile
        if delivery.outcome == "delivered" and delivery.anchor is not None:
            anchor = delivery.anchor
            tied = leases.tie(tx, lease, str(anchor))
            tx.later(self._core.keeper.hold, tied, anchor, None)
        elif delivery.outcome in ("retryable", "terminal") and lease.state == "offered":
            self._core.leasing.undelivered(
                tx,
                lease,
                delivery.reason,
                terminal=delivery.outcome == "terminal",
                actor=f"transport:{self._transport.kind}",
            )
