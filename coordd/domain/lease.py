"""The lease: its states, its events, and the one table of legal transitions.

docs/states.md and its picture are generated from `TRANSITIONS`; coordd/domain/moves.py decides with it and
`coordctl verify` holds every receipt against it. Source: docs/states.md#lease
"""

from typing import Final, Literal, get_args

import msgspec

LeaseState = Literal[
    "pending",
    "waiting",
    "offered",
    "acknowledged",
    "running",
    "checkpointed",
    "retry_wait",
    "completed",
    "stopped",
]
LeaseEvent = Literal[
    "accept",  # a trigger became a lease
    "ready",  # the condition it waited for is met
    "offer",
    "ack",
    "renew",
    "checkpoint",
    "complete",
    "fail",  # the worker says that it cannot
    "expire",  # silent past its deadline, or its anchor died
    "undelivered",  # the transport could not hand the offer over
    "done",  # the source itself says that the work is done
    "supersede",
    "remove",
    "cancel",
    "policy_stop",
    "reconfigure",
]

STATES: Final[tuple[LeaseState, ...]] = get_args(LeaseState)
EVENTS: Final[tuple[LeaseEvent, ...]] = get_args(LeaseEvent)
LIVE: Final[frozenset[LeaseState]] = frozenset({"offered", "acknowledged", "running"})
HELD: Final[frozenset[LeaseState]] = frozenset({"acknowledged", "running"})
TERMINAL: Final[frozenset[LeaseState]] = frozenset({"checkpointed", "completed", "stopped"})
OPEN: Final[frozenset[LeaseState]] = frozenset(STATES) - TERMINAL

# Stops that say nothing about the work: nobody needs to look, and the same revision may have a new lease once its
# source shows it again.
PASSING_STOPS: Final[frozenset[str]] = frozenset(
    {"superseded", "source_removed", "config_changed", "taken_at_source", "source_cancelled", "not_selected"}
)

_STOPS: Final[tuple[LeaseEvent, ...]] = ("supersede", "remove", "cancel", "policy_stop", "reconfigure")

TRANSITIONS: Final[dict[tuple[LeaseState | None, LeaseEvent], tuple[LeaseState, ...]]] = {
    (None, "accept"): ("pending", "waiting"),
    ("waiting", "ready"): ("pending",),
    ("pending", "offer"): ("offered",),
    ("retry_wait", "offer"): ("offered",),
    ("offered", "ack"): ("acknowledged",),
    ("acknowledged", "renew"): ("running",),
    ("running", "renew"): ("running",),
    ("acknowledged", "checkpoint"): ("checkpointed", "stopped"),
    ("running", "checkpoint"): ("checkpointed", "stopped"),
    ("acknowledged", "complete"): ("completed",),
    ("running", "complete"): ("completed",),
    ("acknowledged", "fail"): ("retry_wait", "stopped"),
    ("running", "fail"): ("retry_wait", "stopped"),
    ("offered", "expire"): ("retry_wait", "stopped"),
    ("acknowledged", "expire"): ("retry_wait", "stopped"),
    ("running", "expire"): ("retry_wait", "stopped"),
    ("offered", "undelivered"): ("retry_wait", "stopped"),
    **{(state, "done"): ("completed",) for state in STATES if state in OPEN},
    **{(state, event): ("stopped",) for state in STATES if state in OPEN for event in _STOPS},
}


class Lease(msgspec.Struct, frozen=True, gc=False):
    """One exclusive, timed try at a trigger, as it stands.

    Instants named `_ms` are milliseconds on the lease clock, which no step of the wall clock moves;
    `accepted_at_ms` is wall time (UTC), for people.
    """

    row: int  # its place in the store
    lease_id: str
    repo: str
    state: LeaseState
    generation: int  # 0 until first offered; then the repository's counter at the latest offer
    attempt: int  # offers made so far
    attempts_allowed: int
    ttl_ms: int
    deadline_ms: int  # live: over at this instant; retry_wait: due then; waiting: met then; 0: no instant known
    reason: str  # why it waits, retries or stopped: a stable code, or empty
    receipt: int  # sequence number of its latest receipt: the version that compare-and-swap compares
    source: str  # the trigger's kind: task, message or checkpoint
    source_name: str  # the configured source
    source_id: str  # the task's or message's id; for a checkpoint, the parent's trigger id
    source_revision: str
    trigger: int  # row of its trigger
    item_id: str  # the task or message at the root of a chain of checkpoints; else source_id
    item_revision: str
    item_digest: str
    parent: int | None  # row of the lease whose checkpoint this one continues
    priority: int  # 0 first
    config: int  # row of the configuration it was made under
    accepted_at_ms: int
    worker: str  # empty when unknown
    anchor: str  # see domain/anchor.py; empty for none


class Move(msgspec.Struct, frozen=True, gc=False):
    """One decided transition: what the store writes, and the receipt says."""

    before: Lease | None
    after: Lease
    event: LeaseEvent


class Repeat(msgspec.Struct, frozen=True, gc=False):
    """The same request again, already carried out: answered `ok` with `repeated`, written nowhere."""

    lease: Lease
