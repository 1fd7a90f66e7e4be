"""Work as a source shows it: one normalised snapshot, whatever the format it was read from.

Text is carried only to be scanned by the safety rules; it is never stored, logged or put into a prompt.
"""

from typing import Literal

import msgspec

Status = Literal["todo", "progress", "wait", "done", "cancelled"]
EdgeKind = Literal[
    "finish",  # waits until the target is done
    "failure",  # waits until the target is done and failed
    "parent",  # waits while the target itself is held
    "children",  # waits until the children of the target are done
    "any_child",  # waits until one child of the target is done
    "unknown",  # a kind this source does not know: waits
]


class Task(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    status: Status
    raw_status: str  # the source's own word, a short token
    digest: str  # over the content that makes it this piece of work; not over status, notes or dates
    repo: str | None = None  # None: the source's default
    plan: str | None = None
    kind: str = "task"  # the source's type of item
    is_work: bool = True  # False: an item of a kind that no worker is woken for
    taken: bool = False  # someone works on it already, says the source
    failed: bool = False  # done, and the source says that it failed
    priority: int = 2  # 0 first
    not_before_ms: int | None = None  # wall time
    needs_human: bool = False
    intervention: bool = False
    blocked_reason: bool = False
    text: tuple[str, ...] = ()


class Plan(msgspec.Struct, frozen=True):
    id: str
    active: bool
    raw_status: str
    repo: str | None = None
    done: bool = False


class Edge(msgspec.Struct, frozen=True):
    """`from_id` (a task, or a plan, and so all its tasks) depends on `to_id`."""

    from_id: str
    to_id: str
    kind: EdgeKind
    raw_kind: str
    from_plan: bool = False
    to_plan: bool = False


class Message(msgspec.Struct, frozen=True):
    """`asks` is True for an unread, unarchived message whose subject begins `[action]`."""

    id: str
    asks: bool
    digest: str
    repo: str | None = None
    text: tuple[str, ...] = ()


class Problem(msgspec.Struct, frozen=True):
    """One bad item, isolated and named: where it stands and a stable code. It never stops the pass."""

    where: str
    code: str


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a source holds at one instant. A source that cannot give all of it gives none."""

    tasks: tuple[Task, ...] = ()
    plans: tuple[Plan, ...] = ()
    edges: tuple[Edge, ...] = ()
    messages: tuple[Message, ...] = ()
    problems: tuple[Problem, ...] = ()
