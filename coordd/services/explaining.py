"""Why a task runs, or does not: by every rule what its source said last, what gates it, and where its lease stands."""

import sqlite3
from typing import Final

import msgspec

from coordd.domain.clock import Clock
from coordd.domain.errors import UnknownLease, UnknownTask
from coordd.domain.lease import LIVE
from coordd.policy.eligibility import Rule
from coordd.services.gates import Gates
from coordd.services.intake import decode_rules
from coordd.services.looking import LeaseLook, Looking
from coordd.store import items, reading
from coordd.store.items import Item


class Explanation(msgspec.Struct, frozen=True):
    item: Item
    runs: bool
    code: str
    because: str
    until_ms: int | None  # wall time
    rules: tuple[Rule, ...]
    gates: tuple[Rule, ...]
    look: LeaseLook | None


class Explaining:
    def __init__(self, *, clock: Clock, gates: Gates, looking: Looking) -> None:
        self._clock = clock
        self._gates = gates
        self._looking = looking

    def explain(self, connection: sqlite3.Connection, name: str, source: str | None) -> Explanation:
        """Args: name: a task's, a message's or a lease's id.
        Raises: UnknownTask: no source shows it, or several do.
        """
        found = items.find(connection, name, source)
        if not found:
            found = self._by_lease(connection, name)
        if not found:
            where = f"source {source} shows" if source else "the sources show"
            raise UnknownTask(f"{where} no task {name[:64]}; see `coordctl sources` for what they could not take in")
        if len(found) > 1:
            names = ", ".join(item.source_name for item in found[:8])
            raise UnknownTask(f"{name[:64]} is in several sources; name one of {names}", sources=len(found))
        (item,) = found
        gates = self._gates_of(item)
        look = None
        if item.lease is not None:
            look = self._looking.at_row(connection, item.lease)
        code, because, until_ms, runs = self._conclude(connection, item, gates, look)
        return Explanation(item, runs, code, because, until_ms, decode_rules(item.rules), gates, look)

    def _by_lease(self, connection: sqlite3.Connection, name: str) -> list[Item]:
        try:
            lease = reading.find(connection, name)
        except UnknownLease:
            return []
        return items.find(connection, lease.item_id, lease.source_name)

    def _gates_of(self, item: Item) -> tuple[Rule, ...]:
        rules = []
        gate = self._gates.of_repo(item.repo)
        if gate is not None:
            rules.append(Rule("repository", "wait", gate.code, (gate.subject,)))
        if not self._gates.source_open(item.source_name):
            rules.append(Rule("source", "wait", "source_failing", (item.source_name,)))
        return tuple(rules)

    def _conclude(
        self, connection: sqlite3.Connection, item: Item, gates: tuple[Rule, ...], look: LeaseLook | None
    ) -> tuple[str, str, int | None, bool]:
        lease = look.lease if look is not None else None
        until_ms = None
        if lease is not None and lease.deadline_ms:
            until_ms = self._clock.wall_ms() + lease.deadline_ms - self._clock.lease_ms()
        if lease is not None and lease.state in LIVE:
            who = lease.worker or "a worker"
            return lease.state, f"lease {lease.lease_id} is {lease.state} by {who}", until_ms, True
        if item.outcome != "eligible":
            decided = next((rule for rule in decode_rules(item.rules) if rule.code == item.code), Rule("status"))
            return item.code, sentence(item.code, decided.about), item.until_ms, False
        if lease is not None and lease.state == "stopped":
            reason = lease.reason or "stopped"
            return (
                reason,
                f"lease {lease.lease_id} was stopped ({reason}); look at it, then `coordctl retry {lease.lease_id}`",
                None,
                False,
            )
        if lease is not None and lease.state == "completed":
            return (
                "completed_here",
                f"lease {lease.lease_id} completed it; the source has not said anything new since",
                None,
                False,
            )
        if gates:
            return gates[0].code, sentence(gates[0].code, gates[0].about), None, False
        if lease is not None and lease.state == "retry_wait":
            return "retry_wait", f"lease {lease.lease_id} waits for its next try ({lease.reason})", until_ms, False
        if lease is not None and lease.state == "waiting":
            code = lease.reason or "waiting"
            return code, sentence(code, (item.repo,)), until_ms, False
        if lease is None:
            return "not_taken_in", "the source has just shown it; its lease is being made", None, False
        holder = self._looking.holder(connection, item.repo)
        if holder is not None:
            return (
                "repo_busy",
                f"repository {item.repo} is held by lease {holder}; one lease at a time",
                None,
                False,
            )
        return (
            "pending",
            f"lease {lease.lease_id} is next in line: a worker that asks for {item.repo} gets work",
            None,
            True,
        )


SENTENCES: Final[dict[str, str]] = {
    "done": "the source says that it is done",
    "source_cancelled": "the source says that it was given up",
    "status_waits": "its status at the source is {about}; it waits until that changes",
    "taken_at_source": "the source says that somebody works on it already",
    "kind_not_work": "items of type {about} wake nobody; see `types` of the source",
    "no_action_asked": "the message is read, archived, or its subject does not begin with [action]",
    "no_repository": "neither it nor its source names a repository; set `repo` of the source",
    "not_selected": "repository {about} is not in the configuration",
    "plan_missing": "its plan {about} is not in the source",
    "plan_not_active": "its plan is not ready or active: {about}",
    "dependency_open": "it depends on {about}, not finished yet",
    "dependency_missing": "it depends on {about}, which the source does not show",
    "dependency_unknown_type": "it has a dependency of a type that is not known: {about}",
    "dependency_cycle": "it waits for itself: {about} depend on each other in a circle",
    "parent_held": "its parent {about} is held itself",
    "not_before": "it is put off to a later time",
    "needs_human": "it is marked as needing a human",
    "intervention": "someone left an intervention note on it",
    "blocked_reason": "the source gives a reason why it is blocked",
    "policy_forbids": "the configuration does not allow {about}",
    "attempts_zero": "leases.attempts is 0: nothing is offered",
    "paused": "{about} is paused; `coordctl resume` lifts it",
    "path_missing": "the directory of {about} does not exist",
    "draining": "the daemon is stopping",
    "source_failing": "source {about} gives no complete snapshot; see `coordctl sources`",
    "repo_busy": "repository {about} is held by another lease; one at a time",
}


def sentence(code: str, about: tuple[str, ...]) -> str:
    """One sentence for a reason code; the code itself for one that a source or worker made up."""
    if code.startswith("sensitive_text"):
        return (
            f"its text asks for something sensitive ({code.partition(':')[2] or 'unspecified'}): a person has to look"
        )
    return SENTENCES.get(code, code).format(about=", ".join(about) or "it")
