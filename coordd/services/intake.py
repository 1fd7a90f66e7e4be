"""Turns what a source shows into leases, item by item, inside write transactions."""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from coordd.config.settings import Repo, Settings, Source
from coordd.domain.lease import LIVE, OPEN, Lease
from coordd.domain.trigger import Trigger, fingerprint
from coordd.policy.eligibility import Assessment, Rule
from coordd.policy.reconcile import Verdict, decide, gone
from coordd.services.gates import Gates
from coordd.services.leasing import Leasing
from coordd.store import items, leases, repositories, triggers
from coordd.store.items import Item
from coordd.store.transaction import Transaction

ISSUED_ON_HOLD: Final = ("paused", "path_missing")  # gates that a new lease waits for by name
_encode_rules: Final = msgspec.json.Encoder().encode
decode_rules: Final = msgspec.json.Decoder(tuple[Rule, ...]).decode


class Intake:
    def __init__(self, *, leasing: Leasing, gates: Gates, settings: Callable[[], Settings]) -> None:
        self._leasing = leasing
        self._gates = gates
        self._settings = settings
        # An item has something new that its live lease keeps from being acted on.
        self.put_off: Callable[[str, str], None] = lambda item_id, source_name: None

    def take(self, tx: Transaction, source: Source, wanted: Iterable[Assessment]) -> None:
        """Store what the source says about some of its items, and do what follows from it."""
        for assessment in wanted:
            before = items.get(tx, source.name, assessment.item_id)
            self._reconcile(tx, source, assessment, before, item_from(source.name, assessment, before))

    def look_again(self, tx: Transaction, source: Source, item_id: str) -> None:
        """Reconsider an item by what its source said last: its lease has ended, or the configuration changed."""
        item = items.get(tx, source.name, item_id)
        if item is not None:
            self._reconcile(tx, source, assessment_from(item), item, item)

    def drop(self, tx: Transaction, source_name: str, gone_ids: Iterable[str]) -> None:
        """These items are no longer in their source."""
        for item_id in gone_ids:
            item = items.get(tx, source_name, item_id)
            if item is None:
                continue
            lease = None if item.lease is None else leases.at_row(tx, item.lease)
            self._end(tx, lease, gone(lease), f"source:{source_name}")
            items.remove(tx, source_name, item_id)

    def _reconcile(self, tx: Transaction, source: Source, wanted: Assessment, before: Item | None, item: Item) -> None:
        actor = f"source:{source.name}"
        lease = None if item.lease is None else leases.at_row(tx, item.lease)
        repo = next((repo for repo in self._settings().repo if repo.name == wanted.repo), None)
        config = self._config(tx, repo, source) if repo is not None else 0
        verdict = decide(wanted, lease, config=config, reopened=item.reopened)
        if (
            lease is not None
            and lease.state in LIVE
            and (lease.item_revision, lease.config) != (wanted.revision, config)
        ):
            tx.later(self.put_off, wanted.item_id, source.name)
        if lease is not None:
            self._end(tx, lease, verdict, actor)
            if verdict.ready:
                self._leasing.make_ready(tx, lease, actor)
            elif verdict.end is None and lease.state in OPEN - LIVE:
                self._note(tx, lease, wanted)
        if verdict.issue is not None and repo is not None:
            issued = self._issue(tx, source, repo, wanted, verdict, lease, config, actor)
            item = replace(
                item,
                lease=issued.row,
                reopened=False,
                worked=item.worked or (lease is not None and lease.attempt > 0),
            )
        if item != before:
            items.put(tx, item)

    def _note(self, tx: Transaction, lease: Lease, wanted: Assessment) -> None:
        reason = wanted.code if lease.state == "waiting" and wanted.outcome == "wait" else ""
        leases.note(tx, lease, reason=reason, priority=lease.priority if lease.priority < 0 else wanted.priority)

    def _end(self, tx: Transaction, lease: Lease | None, verdict: Verdict, actor: str) -> None:
        if lease is None or verdict.end is None:
            return
        if verdict.end == "done":
            self._leasing.finish(tx, lease, actor)
        else:
            self._leasing.stop(tx, lease, verdict.end, verdict.end_reason, actor)

    def _issue(
        self,
        tx: Transaction,
        source: Source,
        repo: Repo,
        wanted: Assessment,
        verdict: Verdict,
        ended: Lease | None,
        config: int,
        actor: str,
    ) -> Lease:
        repositories.ensure(tx, repo.name)
        inherited = ended.parent if verdict.inherit and ended is not None else None
        model = Lease(
            row=0,
            lease_id="",
            repo=repo.name,
            state="pending",
            generation=0,
            attempt=0,
            attempts_allowed=0,
            ttl_ms=round((repo.ttl_s or self._settings().leases.ttl_s) * 1000),
            deadline_ms=self._lease_instant(tx, wanted.until_ms),
            reason="",
            receipt=0,
            source=wanted.kind,
            source_name=source.name,
            source_id=wanted.item_id,
            source_revision=wanted.revision,
            trigger=0,
            item_id=wanted.item_id,
            item_revision=wanted.revision,
            item_digest=wanted.digest,
            parent=inherited,
            priority=wanted.priority if inherited is None else -1,
            config=config,
            accepted_at_ms=0,
            worker="",
            anchor="",
        )
        trigger = Trigger(wanted.kind, wanted.item_id, wanted.revision, repo.name)
        hold = verdict.issue_reason if verdict.issue == "waiting" else None
        if verdict.issue == "pending":
            hold = self._hold(tx, repo.name)
        lease = self._leasing.issue(tx, model, trigger, actor=actor, hold=hold)
        if verdict.issue == "stopped":
            return self._leasing.stop(tx, lease, "policy_stop", verdict.issue_reason or "policy", actor)
        if self._settings().leases.attempts == 0:
            return self._leasing.stop(tx, lease, "policy_stop", "attempts_zero", actor)
        return lease

    def _hold(self, tx: Transaction, repo: str) -> str | None:
        gate = self._gates.of_repo(repo)
        if gate is not None and gate.code in ISSUED_ON_HOLD:
            return gate.code
        return None if leases.holder(tx, repo) is None else "repo_busy"

    def _config(self, tx: Transaction, repo: Repo, source: Source) -> int:
        settings = self._settings()
        return triggers.configuration(tx, settings.version_for(repo, source), settings.policy.profile, tx.wall_ms)

    def _lease_instant(self, tx: Transaction, wall_ms: int | None) -> int:
        """An instant of the wall clock on the lease clock, as the two stand to each other now; 0 for none."""
        if wall_ms is None:
            return 0
        return max(1, tx.lease_ms + wall_ms - tx.wall_ms)


def item_from(source_name: str, wanted: Assessment, before: Item | None) -> Item:
    rules = _encode_rules(wanted.rules).decode()
    was_over = before is not None and before.status in ("done", "cancelled", "wait")
    return Item(
        source_name,
        wanted.item_id,
        wanted.kind,
        wanted.repo,
        wanted.revision,
        wanted.digest,
        wanted.status,
        wanted.outcome,
        wanted.code,
        rules,
        wanted.until_ms,
        wanted.priority,
        None if before is None else before.lease,
        before is not None and (before.reopened or (was_over and wanted.status in ("todo", "progress"))),
        before is not None and before.worked,
        fingerprint_of(wanted),
    )


def fingerprint_of(wanted: Assessment) -> str:
    return fingerprint([msgspec.structs.astuple(wanted)])


def assessment_from(item: Item) -> Assessment:
    return Assessment(
        item_id=item.item_id,
        kind=item.kind,  # type: ignore[arg-type]  # written by item_from
        repo=item.repo,
        revision=item.revision,
        digest=item.digest,
        status=item.status,
        outcome=item.outcome,  # type: ignore[arg-type]  # written by item_from
        code=item.code,
        rules=decode_rules(item.rules),
        until_ms=item.until_ms,
        priority=item.priority,
    )
