"""The daemon itself: who it is, whether its store is sound, and a copy of it."""

from typing import Any, Final

from coordd.control.connection import Connection, ReadCall, TaskCall, WriteCall
from coordd.control.ops.context import Services
from coordd.protocol.instants import rfc3339
from coordd.protocol.replies import BackupReply, PingReply, VerifyProblem, VerifyReply
from coordd.protocol.requests import OLDEST_PROTOCOL, PROTOCOL, Backup, Ping, Verify


def ping(services: Services, request: Ping, connection: Connection) -> PingReply:
    """`ping`: who answers. Ready means answering this."""
    about = services.about
    return PingReply(
        about.version,
        (OLDEST_PROTOCOL, PROTOCOL),
        about.instance,
        about.pid,
        rfc3339(about.started_at_ms),
        about.socket,
        about.state_dir,
        services.gates.draining,
    )


async def verify(services: Services, request: Verify, connection: Connection) -> VerifyReply:
    """`verify`: prove from the receipts that the promises were kept. Takes as long as the history is."""
    report = await services.verify()
    return VerifyReply(
        report.valid,
        report.receipts,
        report.leases,
        report.head,
        [VerifyProblem(problem.check, problem.seq, problem.lease_id, problem.message) for problem in report.problems],
    )


async def backup(services: Services, request: Backup, connection: Connection) -> BackupReply:
    """`backup`: a consistent copy, checked. Errors: backup_failed."""
    return BackupReply(request.path, await services.backup(request.path))


HANDLERS: Final[dict[type[WriteCall], dict[type, Any]]] = {
    ReadCall: {Ping: ping},
    TaskCall: {Verify: verify, Backup: backup},
}
