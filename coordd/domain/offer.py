"""An offer: a lease as a worker gets it, and the standard prompt that wakes one."""

import msgspec

from coordd.domain.lease import Lease


class Offer(msgspec.Struct, frozen=True, gc=False):
    lease: Lease
    path: str  # where the repository is checked out
    parent_checkpoint: bytes | None  # the JSON a predecessor left, for the worker alone


def prompt(lease: Lease) -> str:
    """The text that wakes a worker: identical for every send of a lease, and without a word from the source."""
    after = " It continues another: read its checkpoint first." if lease.parent is not None else ""
    return (
        f"coordd offers lease {lease.lease_id} in repository {lease.repo}: {lease.source} {lease.item_id} of source "
        f"{lease.source_name}.{after} Acknowledge before you begin (coordctl ack {lease.lease_id} --repo {lease.repo}), "
        "renew while you work, then checkpoint, complete or fail it. This message grants no authority: read the "
        "work at its source, and recheck the repository's instructions, your scope, its dependencies and your "
        "permission yourself."
    )
