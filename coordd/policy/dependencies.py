"""What a task waits for: the edges of one snapshot, judged."""

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from coordd.domain.work import Edge, Plan, Snapshot, Task
from coordd.policy.circles import circles

State = Literal["satisfied", "open", "missing", "unknown", "held"]
OVER = ("done", "cancelled")


class Dependency(msgspec.Struct, frozen=True):
    edge: Edge
    state: State


class Dependencies:
    """The edges of a snapshot, looked up by where they begin. No recursion: a chain may be as long as the file."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.tasks: Mapping[str, Task] = {task.id: task for task in snapshot.tasks}
        self.plans: Mapping[str, Plan] = {plan.id: plan for plan in snapshot.plans}
        self._of_task: dict[str, list[Edge]] = {}
        self._of_plan: dict[str, list[Edge]] = {}
        self._children: dict[str, list[str]] = {}
        for edge in snapshot.edges:
            edges = self._of_plan if edge.from_plan else self._of_task
            edges.setdefault(edge.from_id, []).append(edge)
            if edge.kind == "parent" and not edge.from_plan:
                self._children.setdefault(edge.to_id, []).append(edge.from_id)
        self._held: dict[str, bool] = {}
        self._cycles = {name: part for part in circles(self._open_edges()) for name in part}

    def of(self, task: Task) -> list[Dependency]:
        """Every dependency of a task and of its plan, in the order of the source."""
        return [Dependency(edge, self._state(edge)) for edge in self._edges(task)]

    def cycle_of(self, task_id: str) -> tuple[str, ...]:
        """The tasks that wait for each other in a circle with this one, itself included; empty when there is none."""
        return self._cycles.get(task_id, ())

    def _edges(self, task: Task) -> list[Edge]:
        own = self._of_task.get(task.id, [])
        return own + self._of_plan.get(task.plan, []) if task.plan is not None else own

    def _state(self, edge: Edge) -> State:
        if edge.kind == "unknown":
            return "unknown"
        if edge.to_plan:
            plan = self.plans.get(edge.to_id)
            return "missing" if plan is None else "satisfied" if plan.done else "open"
        target = self.tasks.get(edge.to_id)
        if target is None:
            return "missing"
        if edge.kind == "finish":
            return "satisfied" if target.status == "done" else "open"
        if edge.kind == "failure":
            return "satisfied" if target.status == "done" and target.failed else "open"
        if edge.kind == "parent":
            return "held" if self._is_held(edge.to_id) else "satisfied"
        # A child that the source could not show is not finished as far as anyone knows.
        children = [self.tasks.get(child) for child in self._children.get(edge.to_id, ())]
        finished = [child is not None and child.status in OVER for child in children]
        if edge.kind == "any_child":
            return "satisfied" if any(finished) else "open"
        # Children may still be made while their parent is open: without any, its own end is waited for.
        return "satisfied" if all(finished) and (children or target.status in OVER) else "open"

    def _is_held(self, task_id: str) -> bool:
        """Whether a parent holds its children: it waits by its status, for a dependency, or under its own parent.

        In a circle of parents nobody is held by it: the circle is a rule of its own.
        """
        if task_id in self._held:
            return self._held[task_id]
        entered = {task_id}
        path = [(task_id, self._parents(task_id))]
        while path:
            name, parents = path[-1]
            above = next((parent for parent in parents if parent not in entered), None)
            if above is not None and above not in self._held:
                entered.add(above)
                path.append((above, self._parents(above)))
                continue
            if above is not None:
                continue
            path.pop()
            self._held[name] = self._waits(name) or any(self._held.get(parent) for parent in self._parents(name))
        return self._held[task_id]

    def _parents(self, task_id: str) -> Iterator[str]:
        task = self.tasks.get(task_id)
        if task is None or task.status in OVER:
            return iter(())
        return iter([edge.to_id for edge in self._edges(task) if edge.kind == "parent"])

    def _waits(self, task_id: str) -> bool:
        task = self.tasks.get(task_id)
        if task is None or task.status in OVER:
            return False
        if task.status == "wait":
            return True
        return any(self._state(edge) != "satisfied" for edge in self._edges(task) if edge.kind != "parent")

    def _open_edges(self) -> dict[str, list[str]]:
        """What each open task waits for among the other open tasks."""
        open_tasks = {task.id: task for task in self.tasks.values() if task.status not in OVER}
        return {
            task.id: [
                edge.to_id
                for edge in self._edges(task)
                if edge.kind != "unknown" and not edge.to_plan and edge.to_id in open_tasks
            ]
            for task in open_tasks.values()
        }
