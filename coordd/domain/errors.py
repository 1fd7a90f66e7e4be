"""Refusals: every answer other than `ok` that the dispatch core can give."""

from typing import ClassVar


class CoordError(Exception):
    """A refusal the client can act on. Any other exception that escapes is our bug.

    The message is one sentence that names the thing and the remedy. `detail` holds ids, states, codes and
    numbers: no secrets, no work text.
    """

    code: ClassVar[str]  # on the wire and in docs/protocol.md; renaming one breaks clients
    retryable: ClassVar[bool] = False  # the same request may succeed later

    def __init__(self, message: str, **detail: str | int) -> None:
        super().__init__(message)
        self.detail = detail


class UnknownLease(CoordError):
    code = "unknown_lease"


class WrongRepo(CoordError):
    code = "wrong_repo"


class StaleGeneration(CoordError):
    code = "stale_generation"


class LeaseExpired(CoordError):
    code = "lease_expired"


class LeaseOver(CoordError):
    code = "lease_over"


class LeaseTaken(CoordError):
    """The offer was acknowledged by another worker first."""

    code = "lease_taken"


class NotOffered(CoordError):
    """The lease has not been offered to anyone yet."""

    code = "not_offered"


class NotAcknowledged(CoordError):
    """An offer must be acknowledged before it is renewed, checkpointed, completed or failed."""

    code = "not_acknowledged"


class CheckpointTooLarge(CoordError):
    code = "checkpoint_too_large"


class NotStopped(CoordError):
    """Only a stopped lease can be retried."""

    code = "not_stopped"


class Superseded(CoordError):
    """The lease cannot be retried: its source has moved on."""

    code = "superseded"


class UnknownRepo(CoordError):
    code = "unknown_repo"


class UnknownTask(CoordError):
    code = "unknown_task"


class AnchorGone(CoordError):
    """The process named as anchor does not run, or its number has been reused."""

    code = "anchor_gone"


class AnchorForeign(CoordError):
    """The process named as anchor belongs to another user."""

    code = "anchor_foreign"


class Draining(CoordError):
    """The daemon is stopping and takes no new work."""

    code, retryable = "draining", True


class WriteConflict(CoordError):
    """The row changed between reading and writing; with one writer this is a bug, and harmless to retry."""

    code, retryable = "write_conflict", True


class StoreUnavailable(CoordError):
    """The transaction is not on disk and nothing of it was kept.

    `detail["cause"]` is one of disk_full, read_only, corrupt, locked, io.
    """

    code, retryable = "store_unavailable", True


class StoreRefused(CoordError):
    """The store cannot be opened as it is; the message says what to do. Raised only at start."""

    code = "store_refused"


class StartRefused(CoordError):
    """The daemon cannot start here; the message says what to do."""

    code = "start_refused"


class BackupFailed(CoordError):
    code = "backup_failed"


class ConfigRefused(CoordError):
    """The configuration cannot be used; the message names the file, the key and the nearest right one."""

    code = "config_refused"


class SourceFailed(CoordError):
    """A work source could not give a complete snapshot. `detail["cause"]` is a stable reason code."""

    code, retryable = "source_failed", True
