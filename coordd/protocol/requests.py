"""What a client may ask: one struct per op, the op's name as its tag. Source: docs/protocol.md#ops

Every struct refuses fields it does not know, but for `ping`, `status` and `stop`, which must work across protocol
versions. Ranges are here and nowhere else; a string field is checked for its length only where it is stored.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

PROTOCOL: Final = 1
OLDEST_PROTOCOL: Final = 1

Name = Annotated[str, Meta(min_length=1, max_length=200)]
LeaseId = Annotated[str, Meta(min_length=1, max_length=64)]
Generation = Annotated[int, Meta(ge=1, le=2**53)]
Row = Annotated[int, Meta(ge=0, le=2**53)]
Limit = Annotated[int, Meta(ge=1, le=1000)]
# What is stored and shown again is a token: no blanks, no control characters, nothing a terminal would obey.
Token = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@:/+#-]{0,127}\Z")]
Code = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_]{0,63}\Z")]


class Request(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", forbid_unknown_fields=True, gc=False):
    id: Annotated[int, Meta(ge=-(2**53), le=2**53)] | Annotated[str, Meta(max_length=128)] | None = None  # echoed


Body = Annotated[int, Meta(ge=0, le=2**20)] | None  # bytes of JSON that follow the line


class Ping(Request, frozen=True, tag="ping", forbid_unknown_fields=False):
    body: Body = None  # refused, but read: a document of another protocol version must not break the framing


class Status(Request, frozen=True, tag="status", forbid_unknown_fields=False):
    body: Body = None


class Stop(Request, frozen=True, tag="stop", forbid_unknown_fields=False):
    body: Body = None


class Reload(Request, frozen=True, tag="reload"): ...


class Pause(Request, frozen=True, tag="pause"):
    repo: Name | None = None  # one repository; all of them when absent


class Resume(Request, frozen=True, tag="resume"):
    repo: Name | None = None


class Next(Request, frozen=True, tag="next"):
    worker: Token
    repos: Annotated[list[Name], Meta(min_length=1, max_length=256)] | None = None  # any when absent
    wait: Annotated[float, Meta(ge=0, le=3600)] = 30.0  # seconds


class Pid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pid: Annotated[int, Meta(ge=1, le=2**31 - 1)]


class Ack(Request, frozen=True, tag="ack"):
    lease_id: LeaseId
    repo: Name
    generation: Generation | None = None
    worker: Token | None = None
    # "connection", "peer" (the process at the other end) or {"pid": N}; none when absent
    anchor: Annotated[str, Meta(pattern=r"^(connection|peer)\Z")] | Pid | None = None


class Holding(Request, frozen=True):
    """What every op on a held lease names: a mistake in one of them is refused, never guessed."""

    lease_id: LeaseId
    repo: Name
    generation: Generation


class Renew(Holding, frozen=True, tag="renew"): ...


class Complete(Holding, frozen=True, tag="complete"): ...


class Fail(Holding, frozen=True, tag="fail"):
    reason: Code = "failed"
    retry: bool = True


class CheckpointDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    summary: str = ""
    files_changed: tuple[str, ...] = ()
    next_action: str = ""
    blocked_reason: str = ""


class Checkpoint(Holding, frozen=True, tag="checkpoint"):
    """The document comes in the line, or as `body` bytes of JSON behind it."""

    checkpoint: CheckpointDocument | None = None
    body: Body = None


class Cancel(Request, frozen=True, tag="cancel"):
    lease_id: LeaseId
    reason: Code = "cancelled"


class Retry(Request, frozen=True, tag="retry"):
    lease_id: LeaseId


class Leases(Request, frozen=True, tag="leases"):
    states: Annotated[list[Code], Meta(max_length=9)] | None = None  # open ones, and stopped ones to look at
    repo: Name | None = None
    source: Name | None = None
    after: Row = 0  # the `next` of the page before
    limit: Limit = 100


class Show(Request, frozen=True, tag="show"):
    lease_id: LeaseId


class Explain(Request, frozen=True, tag="explain"):
    task: Name  # a task id, a message id, or a lease id
    source: Name | None = None


class History(Request, frozen=True, tag="history"):
    lease_id: LeaseId | None = None  # one lease's receipts; everyone's when absent
    repo: Name | None = None
    after: Row = 0  # receipts with a greater sequence number
    limit: Limit = 100


class Verify(Request, frozen=True, tag="verify"): ...


class Backup(Request, frozen=True, tag="backup"):
    path: Annotated[str, Meta(min_length=1, max_length=4096)]  # absolute; must not exist


class Subscribe(Request, frozen=True, tag="subscribe"):
    after: Row | None = None  # receipts with a greater sequence number; from now on when absent


AnyRequest = (
    Ping
    | Status
    | Stop
    | Reload
    | Pause
    | Resume
    | Next
    | Ack
    | Renew
    | Complete
    | Fail
    | Checkpoint
    | Cancel
    | Retry
    | Leases
    | Show
    | Explain
    | History
    | Verify
    | Backup
    | Subscribe
)

OPS: Final[dict[str, type[Request]]] = {str(kind.__struct_config__.tag): kind for kind in AnyRequest.__args__}
