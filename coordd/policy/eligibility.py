"""Whether a worker may be woken for an item: one function for first run, retry, recovery and takeover alike.

It applies every rule to every item and keeps each outcome, so that `coordctl explain` prints what was decided, not
what somebody thinks would be. Source: docs/states.md#reasons
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final, Literal

import msgspec

from coordd.domain.trigger import fingerprint, revision
from coordd.domain.work import Message, Plan, Snapshot, Task
from coordd.policy.dependencies import Dependencies, Dependency
from coordd.policy.safety import message_stops, stops

Outcome = Literal["eligible", "wait", "stop", "done", "cancelled", "none"]
SHOWN: Final = 8  # ids named per rule; a task may have hundreds of dependencies


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rule as it was applied: `pass`, or what it makes of the item, with a code and the ids it is about."""

    rule: str
    outcome: Literal["pass", "wait", "stop", "done", "cancelled", "none"] = "pass"
    code: str = ""
    about: tuple[str, ...] = ()


class Assessment(msgspec.Struct, frozen=True, kw_only=True):
    item_id: str
    kind: Literal["task", "message"]
    repo: str
    revision: str
    digest: str
    status: str
    outcome: Outcome
    code: str
    rules: tuple[Rule, ...]
    until_ms: int | None = None  # wall time from which a waiting item is eligible
    priority: int = 2


class Policy(msgspec.Struct, frozen=True):
    """What the configuration says: the repositories work may go to, and the classes of action that are allowed."""

    repos: Collection[str]
    default_repo: str | None
    allow: Collection[str]


NEEDED: Final = {"task": ("inspect", "edit", "check", "update_state", "wake"), "message": ("inspect", "wake")}


def assess(
    snapshot: Snapshot, source_name: str, policy: Policy, *, now_ms: int, ours: Callable[[str], bool]
) -> list[Assessment]:
    """Judge every item of a complete snapshot.

    Args:
        now_ms: wall time.
        ours: whether a worker of ours has been at an item, so that its mark of being worked on is our own doing.
    """
    graph = Dependencies(snapshot)
    judged = [_task(task, graph, source_name, policy, now_ms, ours) for task in snapshot.tasks]
    judged.extend(_message(message, source_name, policy) for message in snapshot.messages)
    return judged


def _task(
    task: Task, graph: Dependencies, source_name: str, policy: Policy, now_ms: int, ours: Callable[[str], bool]
) -> Assessment:
    plan = graph.plans.get(task.plan) if task.plan is not None else None
    repo = task.repo or (plan.repo if plan is not None else None) or policy.default_repo or ""
    dependencies = graph.of(task)
    rules = (
        _repository(repo, policy),
        Rule("kind") if task.is_work else Rule("kind", "none", "kind_not_work", (task.kind,)),
        _status(task),
        _taken(task, ours),
        _plan(task, plan),
        *_dependency_rules(dependencies, graph.cycle_of(task.id)),
        _time(task, now_ms),
        *_safety(stops(task)),
        _allowed(policy, "task"),
    )
    decided = _decide(rules)
    waits_for_time = decided.code == "not_before" and all(
        rule.outcome == "pass" or rule.code == "not_before" for rule in rules
    )
    return Assessment(
        item_id=task.id,
        kind="task",
        repo=repo,
        revision=revision(
            source_name,
            task.digest,
            # To mark a task as being worked on is no new reason to work on it.
            "todo" if task.status == "progress" else task.status,
            None if task.plan is None else (task.plan, "active" if plan is not None and plan.active else "inactive"),
            ((dependency.edge.raw_kind, dependency.edge.to_id, dependency.state) for dependency in dependencies),
        ),
        digest=task.digest,
        status=task.status,
        outcome="eligible" if decided.outcome == "pass" else decided.outcome,
        code=decided.code,
        rules=rules,
        until_ms=task.not_before_ms if waits_for_time else None,
        priority=task.priority,
    )


def _message(message: Message, source_name: str, policy: Policy) -> Assessment:
    repo = message.repo or policy.default_repo or ""
    rules = (
        _repository(repo, policy),
        Rule("asks") if message.asks else Rule("asks", "none", "no_action_asked"),
        *_safety(message_stops(message)),
        _allowed(policy, "message"),
    )
    decided = _decide(rules)
    return Assessment(
        item_id=message.id,
        kind="message",
        repo=repo,
        revision=fingerprint([source_name, message.digest, message.asks]),
        digest=message.digest,
        status="todo" if message.asks else "wait",
        outcome="eligible" if decided.outcome == "pass" else decided.outcome,
        code=decided.code,
        rules=rules,
        priority=2,
    )


_WEIGHT: Final = {"none": 0, "done": 1, "cancelled": 1, "wait": 2, "stop": 3, "pass": 4}


def _decide(rules: Iterable[Rule]) -> Rule:
    """What weighs most: not work at all, then over, then waiting, then stopped. Of equals, the first.

    Waiting weighs more than a stop, because nobody needs to look at what would not run anyway.
    """
    return min(rules, key=lambda rule: _WEIGHT[rule.outcome])


def _repository(repo: str, policy: Policy) -> Rule:
    if not repo:
        return Rule("repository", "none", "no_repository")
    if repo not in policy.repos:
        return Rule("repository", "none", "not_selected", (repo,))
    return Rule("repository", about=(repo,))


def _status(task: Task) -> Rule:
    if task.status == "done":
        return Rule("status", "done", "done", (task.raw_status,))
    if task.status == "cancelled":
        return Rule("status", "cancelled", "source_cancelled", (task.raw_status,))
    if task.status == "wait":
        return Rule("status", "wait", "status_waits", (task.raw_status,))
    return Rule("status", about=(task.raw_status,))


def _taken(task: Task, ours: Callable[[str], bool]) -> Rule:
    if task.taken and task.status == "progress" and not ours(task.id):
        return Rule("taken", "wait", "taken_at_source", (task.raw_status,))
    return Rule("taken")


def _plan(task: Task, plan: Plan | None) -> Rule:
    if task.plan is None:
        return Rule("plan")
    if plan is None:
        return Rule("plan", "wait", "plan_missing", (task.plan,))
    if not plan.active:
        return Rule("plan", "wait", "plan_not_active", (plan.id, plan.raw_status))
    return Rule("plan", about=(plan.id, plan.raw_status))


def _time(task: Task, now_ms: int) -> Rule:
    if task.not_before_ms is not None and now_ms < task.not_before_ms:
        return Rule("time", "wait", "not_before")
    return Rule("time")


def _safety(codes: tuple[str, ...]) -> tuple[Rule, ...]:
    return tuple(Rule("safety", "stop", code) for code in codes) or (Rule("safety"),)


def _allowed(policy: Policy, kind: Literal["task", "message"]) -> Rule:
    missing = tuple(action for action in NEEDED[kind] if action not in policy.allow)
    return Rule("policy", "stop", "policy_forbids", missing) if missing else Rule("policy")


_CODES: Final = {
    "open": "dependency_open",
    "missing": "dependency_missing",
    "unknown": "dependency_unknown_type",
    "held": "parent_held",
}


def _dependency_rules(dependencies: list[Dependency], cycle: tuple[str, ...]) -> list[Rule]:
    """One rule per kind of trouble; of many ids of one kind the first few are named."""
    rules = []
    if cycle:
        rules.append(Rule("dependencies", "wait", "dependency_cycle", cycle[:SHOWN]))
    for state, code in _CODES.items():
        about = tuple(
            dependency.edge.raw_kind if state == "unknown" else dependency.edge.to_id
            for dependency in dependencies
            if dependency.state == state
        )
        if about:
            rules.append(Rule("dependencies", "wait", code, about[:SHOWN]))
    return rules or [Rule("dependencies", about=tuple(d.edge.to_id for d in dependencies)[:SHOWN])]
