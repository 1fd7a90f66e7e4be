"""How a worker is woken. Delivered is not acknowledged, and neither is done.

`pull` has no code here: a worker that waits in `next` is its own transport, and the answer is the wake.
"""

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from coordd.domain.anchor import Anchor
from coordd.domain.lease import Lease
from coordd.domain.offer import Offer


class Delivery(msgspec.Struct, frozen=True):
    """What became of a wake.

    `delivered`: the peer has it; `anchor`, where there is one, is the process that was started for it.
    `retryable`, `terminal`: it was not taken, and may or may not be another time; `reason` is a stable code.
    `ambiguous`: nobody knows; the lease waits to be acknowledged, or runs out.
    """

    outcome: Literal["delivered", "retryable", "terminal", "ambiguous"]
    reason: str = ""
    anchor: Anchor | None = None


class Transport(Protocol):
    """Wakes workers in repositories that are configured for it."""

    kind: str

    async def deliver(self, offer: Offer) -> Delivery:
        """Send the wake for a committed offer. The lease id is the idempotency key: twice is once."""
        ...

    def is_busy(self, repo: str) -> bool:
        """Whether something of an earlier wake is still under way in a repository, so that none may follow."""
        ...

    def ended(self, lease: Lease) -> None:
        """The lease is over, by whatever: end what was started for it, unless its worker completed it."""
        ...

    async def run(self) -> None:
        """Follow what was delivered, until cancelled."""
        ...


Freed = Callable[[str], None]  # a repository is not busy any more
