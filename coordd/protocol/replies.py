"""What a client gets: one struct per kind of answer. Source: docs/protocol.md#ops

`encode` puts `"ok": true`, and the request's `id` when it had one, in front. Optional fields are left out when
they say nothing.
"""

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from coordd.protocol.errors import WIRE_RETRYABLE, Malformed

_encode: Final = msgspec.json.Encoder().encode


class Reply(Struct, frozen=True, omit_defaults=True, gc=False): ...


class Done(Reply, frozen=True):
    """Nothing to say but that it was done."""


class PingReply(Reply, frozen=True):
    version: str
    protocol: tuple[int, int]  # the oldest and the newest spoken
    instance: str
    pid: int
    started_at: str
    socket: str
    state_dir: str
    draining: bool = False


class HeldReply(Reply, frozen=True):
    """A lease after ack, renew, complete, fail, cancel or retry."""

    lease_id: str
    repo: str
    generation: int
    state: str
    expires_at: str | None = None
    expires_in_ms: int | None = None  # for the worker's own clock
    renew_every_ms: int | None = None
    retry_at: str | None = None
    reason: str | None = None
    repeated: bool = False
    source: str | None = None
    source_name: str | None = None
    item_id: str | None = None
    attempt: int | None = None


class CheckpointReply(Reply, frozen=True):
    lease_id: str
    repo: str
    generation: int
    state: str
    continuation: str | None = None
    reason: str | None = None
    repeated: bool = False


class OfferView(Struct, frozen=True):
    lease_id: str
    generation: int
    repo: str
    path: str
    source: str
    source_name: str
    source_id: str
    source_revision: str
    item_id: str
    attempt: int
    expires_at: str
    expires_in_ms: int
    renew_every_ms: int
    prompt: str
    parent_checkpoint: Raw | None


class OfferReply(Struct, frozen=True):
    """`offer` is null when nothing came within the wait; else its lease id and generation stand beside it, where every
    answer about a lease has them.
    """

    offer: OfferView | None
    lease_id: str | None
    generation: int | None


def encode(reply: Any, request_id: int | str | None) -> bytes:
    """One line."""
    body = _encode(reply)
    head = b'{"ok":true' if request_id is None else b'{"ok":true,"id":' + _encode(request_id)
    return head + b"}\n" if body == b"{}" else head + b"," + body[1:] + b"\n"


def encode_error(
    code: str, message: str, retryable: bool, detail: dict[str, str | int], request_id: int | str | None
) -> bytes:
    head = b'{"ok":false,"error":' if request_id is None else b'{"ok":false,"id":' + _encode(request_id) + b',"error":'
    error = {"code": code, "message": message, "retryable": retryable, "detail": detail}
    return head + _encode(error) + b"}\n"


def encode_malformed(malformed: Malformed) -> bytes:
    code = malformed.code
    return encode_error(code, str(malformed), code in WIRE_RETRYABLE, malformed.detail, malformed.id)


class ReloadReply(Struct, frozen=True):
    changed: tuple[str, ...]  # the keys that changed; none when the file says what is in force


class LeaseView(Struct, frozen=True):
    lease_id: str
    repo: str
    state: str
    reason: str | None
    source: str
    source_name: str
    source_id: str
    item_id: str
    generation: int
    attempt: int
    attempts_allowed: int
    priority: int
    worker: str | None
    anchor: str | None
    accepted_at: str
    since: str  # when it came into this state, or was last renewed
    expires_at: str | None  # live leases
    due_at: str | None  # retries, and leases that wait for an instant
    expired: bool  # past its deadline, and about to be ended
    parent: str | None


class LeasesReply(Struct, frozen=True):
    leases: list[LeaseView]
    next: int | None  # ask again with `after` this; null on the last page


class ShowReply(Struct, frozen=True):
    lease: LeaseView
    trigger_id: str
    source_revision: str
    config_version: str
    ttl_ms: int
    checkpoint: Raw | None
    parent_checkpoint: Raw | None
    continuation: str | None


class DaemonView(Struct, frozen=True):
    version: str
    instance: str
    pid: int
    started_at: str
    uptime_ms: int
    draining: bool
    paused: bool
    connections: int
    workers_waiting: int
    executable_deleted: bool  # the program was replaced while it runs


class RepoView(Struct, frozen=True):
    name: str
    transport: str
    path: str
    held_by: str | None  # why nothing is offered there now
    lease: LeaseView | None
    pending: int
    waiting: int
    retrying: int
    completed: int
    checkpointed: int
    stopped: int


class ProblemView(Struct, frozen=True):
    where: str
    code: str


class SourceView(Struct, frozen=True):
    name: str
    kind: str
    ok: bool
    error: str | None
    failures: int
    last_success_at: str | None
    items: int
    problems: Raw


class StatusReply(Struct, frozen=True):
    daemon: DaemonView
    counts: dict[str, int]
    sources: list[SourceView]
    repos: list[RepoView]
    repos_total: int  # more than are listed, where there are very many
    attention: list[LeaseView]


class RuleView(Struct, frozen=True):
    rule: str
    outcome: str
    code: str
    about: tuple[str, ...]


class ExplainReply(Struct, frozen=True):
    task: str
    source: str
    repo: str
    runs: bool  # a worker is at it, or the next that asks gets it
    code: str
    because: str  # one sentence
    until: str | None  # when it changes by itself, where that is known
    revision: str
    status: str
    rules: list[RuleView]  # what the source's last snapshot says, rule by rule
    gates: list[RuleView]  # what holds the repository or the source now
    lease: LeaseView | None


class ReceiptView(Struct, frozen=True):
    seq: int
    lease_id: str
    repo: str
    event: str
    from_state: str | None
    to_state: str
    at: str
    generation: int
    attempt: int
    deadline_ms: int
    reason: str | None
    actor: str
    config: int
    previous: int


class HistoryReply(Struct, frozen=True):
    receipts: list[ReceiptView]
    next: int | None


class VerifyProblem(Struct, frozen=True):
    check: str
    seq: int | None
    lease_id: str | None
    message: str


class VerifyReply(Struct, frozen=True):
    valid: bool
    receipts: int
    leases: int
    head: str  # the hash of the last receipt, in hex: keep it to prove later that nothing was cut off
    problems: list[VerifyProblem]


class BackupReply(Struct, frozen=True):
    path: str
    size: int


class SubscribeReply(Struct, frozen=True):
    after: int  # the first streamed receipt has a greater sequence number


class ReceiptEvent(Struct, frozen=True, tag_field="event", tag="receipt"):
    """A streamed line; it is no answer and has no `ok`."""

    receipt: ReceiptView


def encode_event(event: ReceiptEvent) -> bytes:
    return _encode(event) + b"\n"
