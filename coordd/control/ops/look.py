"""What anyone may look at."""

from typing import Any, Final

import msgspec

from coordd.control.connection import Connection, ReadCall, WriteCall
from coordd.control.ops.context import Services
from coordd.control.ops.views import lease_view, receipt_view
from coordd.protocol.instants import rfc3339
from coordd.protocol.replies import (
    DaemonView,
    ExplainReply,
    HistoryReply,
    LeasesReply,
    RepoView,
    RuleView,
    ShowReply,
    SourceView,
    StatusReply,
)
from coordd.protocol.requests import Explain, History, Leases, Show, Status
from coordd.services.looking import RepoLook, SourceLook


def status(services: Services, request: Status, connection: Connection) -> StatusReply:
    """`status`: the daemon, its sources, its repositories, and what needs someone."""
    overview = services.read(services.looking.overview)
    about = services.about
    now_ms = services.clock.wall_ms()
    return StatusReply(
        daemon=DaemonView(
            about.version,
            about.instance,
            about.pid,
            rfc3339(about.started_at_ms),
            max(0, now_ms - about.started_at_ms),
            services.gates.draining,
            services.gates.paused,
            len(connection.server.connections),
            overview.workers_waiting,
            about.executable_deleted(),
        ),
        counts=overview.counts,
        sources=[_source(services, state) for state in overview.sources],
        repos=[_repo(services, repo) for repo in overview.repos],
        repos_total=overview.repos_total,
        attention=[lease_view(services, look) for look in overview.attention],
    )


def leases(services: Services, request: Leases, connection: Connection) -> LeasesReply:
    """`leases`: one page of leases, oldest first."""
    looks, following = services.read(
        lambda reader: services.looking.leases(
            reader,
            states=request.states,
            repo=request.repo,
            source=request.source,
            after=request.after,
            limit=request.limit,
        )
    )
    return LeasesReply([lease_view(services, look) for look in looks], following)


def show(services: Services, request: Show, connection: Connection) -> ShowReply:
    """`show`: one lease with all that belongs to it, its checkpoint included. Errors: unknown_lease."""
    detail = services.read(lambda reader: services.looking.show(reader, request.lease_id))
    lease = detail.look.lease
    return ShowReply(
        lease_view(services, detail.look),
        detail.trigger_id,
        lease.source_revision,
        detail.config_version,
        lease.ttl_ms,
        None if detail.checkpoint is None else msgspec.Raw(detail.checkpoint),
        None if detail.parent_checkpoint is None else msgspec.Raw(detail.parent_checkpoint),
        detail.continuation,
    )


def explain(services: Services, request: Explain, connection: Connection) -> ExplainReply:
    """`explain`: why a task runs or does not, rule by rule. Errors: unknown_task."""
    found = services.read(lambda reader: services.explaining.explain(reader, request.task, request.source))
    return ExplainReply(
        found.item.item_id,
        found.item.source_name,
        found.item.repo,
        found.runs,
        found.code,
        found.because,
        None if found.until_ms is None else rfc3339(found.until_ms),
        found.item.revision,
        found.item.status,
        [RuleView(rule.rule, rule.outcome, rule.code, rule.about) for rule in found.rules],
        [RuleView(rule.rule, rule.outcome, rule.code, rule.about) for rule in found.gates],
        None if found.look is None else lease_view(services, found.look),
    )


def history(services: Services, request: History, connection: Connection) -> HistoryReply:
    """`history`: receipts in order: one lease's, one repository's, or all. Errors: unknown_lease."""
    receipts = services.read(
        lambda reader: services.looking.history(
            reader, lease_id=request.lease_id, repo=request.repo, after=request.after, limit=request.limit
        )
    )
    following = receipts[-1].seq if len(receipts) == request.limit else None
    return HistoryReply([receipt_view(receipt) for receipt in receipts], following)


def _source(services: Services, state: SourceLook) -> SourceView:
    return SourceView(
        state.name,
        state.kind,
        state.error is None and services.gates.source_open(state.name),
        state.error,
        state.failures,
        None if state.last_success_ms is None else rfc3339(state.last_success_ms),
        state.items,
        msgspec.Raw(state.problems.encode()),
    )


def _repo(services: Services, repo: RepoLook) -> RepoView:
    return RepoView(
        repo.name,
        repo.transport,
        repo.path,
        repo.gate,
        None if repo.live is None else lease_view(services, repo.live),
        repo.pending,
        repo.waiting,
        repo.retrying,
        repo.tally.completed,
        repo.tally.checkpointed,
        repo.tally.stopped,
    )


HANDLERS: Final[dict[type[WriteCall], dict[type, Any]]] = {
    ReadCall: {Status: status, Leases: leases, Show: show, Explain: explain, History: history}
}
