"""A receipt: the record of one transition, committed with it, chained to the one before.

Only ids, states, reason codes, instants, retry data and versions: never a title, a message or a checkpoint.
"""

import hashlib
from typing import Final

import msgspec

GENESIS: Final = bytes(32)  # the hash before the first receipt

_encode = msgspec.json.Encoder().encode


class Receipt(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One row of the chain. `at_ms` is wall time in UTC milliseconds; `deadline_ms` is on the lease clock.

    The order of the fields is part of the chain: what is hashed is the JSON array of their values.
    """

    seq: int  # 1, 2, 3, … without a gap
    lease: int  # row of the lease
    event: str
    from_state: str  # empty for the first receipt of a lease
    to_state: str
    at_ms: int
    generation: int
    attempt: int
    deadline_ms: int
    reason: str  # a stable code, or empty
    actor: str  # who caused it: worker:…, operator:…, source:…, daemon:…
    config: int
    previous: int  # seq of the same lease's receipt before this one; 0 for its first
    lease_id: str
    repo: str


Values = tuple[int, int, str, str, str, int, int, int, int, str, str, int, int, str, str]  # a receipt's, in order


def chain(previous_hash: bytes, receipt: Receipt | Values) -> bytes:
    """SHA-256 over the hash of the receipt before and the JSON array of this one's values.

    Source: docs/operations.md#verify
    """
    return hashlib.sha256(previous_hash + _encode(receipt)).digest()
