"""One TOML file of a `workplans` source: its format, and what it says. docs/sources.md has a full example.

    [workplan]                        # optional, like all but the ids of what stands in it
    id = "parser"                     # default: the file's name without .toml
    title = "…"
    body = "…"
    status = "active"                 # draft (default), ready, active, paused, done, archived
    repo = "org/app"                  # default: the source's
    depends_on = ["plan:lexer", "lexer/tokens"]

    [[task]]
    id = "grammar"                    # in the snapshot: parser/grammar
    title = "…"
    body = "…"
    status = "todo"                   # todo (default), progress, wait, done, cancelled
    repo = "org/app"                  # default: the plan's
    priority = 2                      # 0 (first) to 4
    depends_on = ["ast", "lexer/tokens", "plan:lexer"]
    not_before = 2027-01-31T09:00:00Z # with an offset
    needs_human = false
    intervention = "…"                # a note: stops the task while it is there
    blocked_reason = "…"              # likewise

    [[message]]
    id = "m1"
    subject = "[action] …"
    body = "…"
    repo = "org/app"
    read = false
    archived = false

A dependency is `PLAN/TASK` for a task, `plan:PLAN` for a plan; a bare word is a task of the same plan, or in
[workplan] a plan. Ids hold no blanks, `/` or `:`.

An item that has a fault is named and left out, so what depends on it waits; a fault in [workplan] leaves out all of
its file.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from coordd.domain.trigger import fingerprint
from coordd.domain.work import Edge, Message, Plan, Problem, Task
from coordd.sources.base import shown
from coordd.sources.fields import Instant, asks, fault, is_id, scanned, to_ms

ACTIVE: Final = frozenset({"ready", "active"})
SILENT: Final = frozenset({"draft", "archived"})  # plans whose messages ask for nothing
_PLAN: Final = "plan:"

Status = Literal["todo", "progress", "wait", "done", "cancelled"]
PlanStatus = Literal["draft", "ready", "active", "paused", "done", "archived"]


class PlanItem(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    id: str = ""
    title: str = ""
    body: str = ""
    status: PlanStatus = "draft"
    repo: str | None = None
    depends_on: list[str] = []


class TaskItem(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    id: str
    title: str = ""
    body: str = ""
    status: Status = "todo"
    repo: str | None = None
    priority: Annotated[int, msgspec.Meta(ge=0, le=4)] = 2
    depends_on: list[str] = []
    not_before: Instant | None = None
    needs_human: bool = False
    intervention: str = ""
    blocked_reason: str = ""


class MessageItem(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    id: str
    subject: str = ""
    body: str = ""
    repo: str | None = None
    read: bool = False
    archived: bool = False


class PlanFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file, understood. Without a `plan` nothing of it is dispatched."""

    plan_id: str | None = None
    plan: Plan | None = None
    tasks: tuple[Task, ...] = ()
    edges: tuple[Edge, ...] = ()
    messages: tuple[Message, ...] = ()
    problems: tuple[Problem, ...] = ()


def understand(name: str, content: Mapping[str, Any]) -> PlanFile:
    """The plan in the file `name`. Never raises: what has a fault is named instead."""
    where = shown(name)
    header = content.get("workplan", {})
    code = _fault_of_file(content)
    item: PlanItem | str = code or _convert(header, PlanItem)
    given = header.get("id", "") if isinstance(header, dict) else ""
    id = given or name.removesuffix(".toml")
    if not _is_part(id):
        return PlanFile(problems=(Problem(where, item if isinstance(item, str) else "bad_id"),))
    edges = [] if isinstance(item, str) else _edges(id, item.depends_on, plan=id, from_plan=True)
    if edges is None:
        item = "bad_depends_on"
    elif not isinstance(item, str) and item.repo is not None and not is_id(item.repo):
        item = "bad_repo"
    if isinstance(item, str):
        ids = [*_ids(id, content.get("task")), *_ids(id, content.get("message"))]
        problems = [Problem(id, item), *(Problem(one, "plan_broken") for one in dict.fromkeys(ids))]
        return PlanFile(plan_id=id, problems=tuple(problems))
    plan = Plan(id=id, active=item.status in ACTIVE, raw_status=item.status, repo=item.repo, done=item.status == "done")
    return _Items(where, plan, item).understand(content, edges or [])


class _Items:
    """The tasks and messages of one plan that has no fault itself."""

    def __init__(self, where: str, plan: Plan, item: PlanItem) -> None:
        self._where, self._plan, self._item = where, plan, item
        self._problems: list[Problem] = []

    def understand(self, content: Mapping[str, Any], edges: list[Edge]) -> PlanFile:
        tasks: list[Task] = []
        messages: list[Message] = []
        for id, raw in self._sound("task", content):
            task = self._task(id, raw)
            if isinstance(task, str):
                self._problems.append(Problem(id, task))
            else:
                tasks.append(task[0])
                edges += task[1]
        for id, raw in self._sound("message", content):
            message = self._message(id, raw)
            if isinstance(message, str):
                self._problems.append(Problem(id, message))
            else:
                messages.append(message)
        return PlanFile(
            plan_id=self._plan.id,
            plan=self._plan,
            tasks=tuple(tasks),
            edges=tuple(edges),
            messages=tuple(messages),
            problems=tuple(self._problems),
        )

    def _sound(self, key: str, content: Mapping[str, Any]) -> list[tuple[str, dict[str, object]]]:
        """The items under `key` that have an id of their own, by it."""
        items = content.get(key, [])
        times = Counter(_ids(self._plan.id, items))
        self._problems += [Problem(id, "duplicate_id") for id, count in times.items() if count > 1]
        sound = []
        for number, raw in enumerate(items, 1):
            ids = _ids(self._plan.id, [raw])
            if not ids:
                self._problems.append(Problem(f"{self._where} {key} {number}", "bad_id"))
            elif times[ids[0]] == 1:
                sound.append((ids[0], raw))
        return sound

    def _task(self, id: str, raw: dict[str, object]) -> tuple[Task, list[Edge]] | str:
        """The task and what it depends on, or the code of its fault."""
        item = _convert(raw, TaskItem)
        if isinstance(item, str):
            return item
        edges = _edges(id, item.depends_on, plan=self._plan.id, from_plan=False)
        if edges is None:
            return "bad_depends_on"
        if item.repo is not None and not is_id(item.repo):
            return "bad_repo"
        over = item.status in ("done", "cancelled")
        # A plan's own words count too: what they say is true of its tasks.
        text = () if over else scanned(self._item.title, self._item.body, item.title, item.body)
        if text is None:
            return "text_too_long"
        task = Task(
            id=id,
            status=item.status,
            raw_status=item.status,
            digest=fingerprint([item.title, item.body, sorted(set(item.depends_on))]),
            repo=item.repo or self._plan.repo,
            plan=self._plan.id,
            priority=item.priority,
            not_before_ms=None if item.not_before is None else to_ms(item.not_before),
            needs_human=item.needs_human,
            intervention=bool(item.intervention.strip()),
            blocked_reason=bool(item.blocked_reason.strip()),
            text=text,
        )
        return task, edges

    def _message(self, id: str, raw: dict[str, object]) -> Message | str:
        """The message, or the code of its fault."""
        item = _convert(raw, MessageItem)
        if isinstance(item, str):
            return item
        if item.repo is not None and not is_id(item.repo):
            return "bad_repo"
        asked = not (item.read or item.archived or self._plan.raw_status in SILENT) and asks(item.subject)
        text = scanned(item.subject, item.body) if asked else ()
        if text is None:
            return "text_too_long"
        digest = fingerprint([item.subject, item.body])
        return Message(id=id, asks=asked, digest=digest, repo=item.repo or self._plan.repo, text=text)


def _fault_of_file(content: Mapping[str, Any]) -> str | None:
    """A fault of the file's frame. An unknown table is one: `[[tasks]]` would hide tasks that others depend on."""
    if not content.keys() <= {"workplan", "task", "message"}:
        return "unknown_key"
    if not isinstance(content.get("workplan", {}), dict):
        return "bad_workplan"
    for key in ("task", "message"):
        if not isinstance(content.get(key, []), list):
            return f"bad_{key}"
    return None


Item = TypeVar("Item", bound=msgspec.Struct)


def _convert(raw: dict[str, object], shape: type[Item]) -> Item | str:
    """The item, or the code of its fault."""
    try:
        return msgspec.convert(raw, shape)
    except msgspec.ValidationError:
        return fault(raw, shape)


def _edges(from_id: str, targets: Iterable[str], *, plan: str, from_plan: bool) -> list[Edge] | None:
    """What an item of `plan` depends on; None when one of the targets is not written as they are."""
    edges: dict[Edge, None] = {}
    for target in targets:
        to_plan = target.startswith(_PLAN) or (from_plan and "/" not in target)
        if to_plan:
            to_id = target.removeprefix(_PLAN)
            parts = [to_id]
        else:
            to_id = target if "/" in target else f"{plan}/{target}"
            parts = to_id.split("/", 1)
        if not all(map(_is_part, parts)) or not is_id(to_id):
            return None
        edges[Edge(from_id, to_id, "finish", "depends_on", from_plan=from_plan, to_plan=to_plan)] = None
    return list(edges)


def _ids(plan: str, items: object) -> list[str]:
    """The ids in the snapshot of the items that have one."""
    ids = []
    for item in items if isinstance(items, list) else ():
        part = item.get("id") if isinstance(item, dict) else None
        if _is_part(part) and is_id(f"{plan}/{part}"):
            ids.append(f"{plan}/{part}")
    return ids


def _is_part(value: object) -> bool:
    """Whether a value can be the id of a plan, or of an item in it."""
    return is_id(value) and "/" not in value and ":" not in value
