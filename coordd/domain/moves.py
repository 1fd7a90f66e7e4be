"""What each event makes of a lease. Pure: the caller passes the instant, the store writes the outcome.

Every function returns the `Move` to commit, or raises the refusal the worker gets. Expiry is decided here, on
reading: a late worker is refused even before the reaper has run.
"""

from typing import NoReturn

from msgspec.structs import replace

from coordd.domain.errors import (
    LeaseExpired,
    LeaseOver,
    LeaseTaken,
    NotAcknowledged,
    NotOffered,
    StaleGeneration,
    WrongRepo,
)
from coordd.domain.lease import LIVE, TERMINAL, TRANSITIONS, Lease, LeaseEvent, LeaseState, Move, Repeat


def ready(lease: Lease) -> Move:
    """The condition is met: the lease may be offered. Raises LeaseOver unless it waits."""
    return _move(lease, "ready", "pending", deadline_ms=0, reason="")


def offer(lease: Lease, *, generation: int, worker: str, now_ms: int) -> Move:
    """Send the lease to a worker: one attempt more, a fresh generation, one ttl to be acknowledged in.

    Args:
        generation: the repository's next; greater than any it ever gave out.
        worker: who asked, where the transport knows; else empty.
    Raises: LeaseOver when the lease is not to be offered now, or a retry is not due yet.
    """
    if lease.state == "retry_wait" and now_ms < lease.deadline_ms:
        raise LeaseOver("the retry is not due yet", lease_id=lease.lease_id, state=lease.state)
    return _move(
        lease,
        "offer",
        "offered",
        generation=generation,
        attempt=lease.attempt + 1,
        deadline_ms=now_ms + lease.ttl_ms,
        reason="",
        worker=worker,
        anchor="",
    )


def ack(lease: Lease, *, repo: str, generation: int | None, worker: str, anchor: str, now_ms: int) -> Move | Repeat:
    """The worker has the work and starts; the first ack of an offer wins.

    A wake prompt is the same for every send of a lease and so carries no generation: an ack may omit it. The same
    worker, or the same generation from nobody else, may ask again and is answered alike.

    Raises: WrongRepo, StaleGeneration, NotOffered, LeaseTaken, LeaseExpired, LeaseOver.
    """
    if lease.state == "offered":
        _check_holder(lease, repo, generation, now_ms)
        return _move(
            lease,
            "ack",
            "acknowledged",
            deadline_ms=now_ms + lease.ttl_ms,
            worker=worker or lease.worker,
            anchor=anchor or lease.anchor,
        )
    _check_holder(lease, repo, generation, now_ms)
    if lease.state in ("acknowledged", "running"):
        same_worker = worker != "" and worker == lease.worker
        if same_worker or (generation is not None and "" in (worker, lease.worker)):
            return Repeat(lease)
        raise LeaseTaken(
            "another worker acknowledged this offer first; ask for other work with `next`",
            lease_id=lease.lease_id,
            generation=lease.generation,
        )
    return _refuse(lease, "ack")


def renew(lease: Lease, *, repo: str, generation: int, now_ms: int) -> Move:
    """One full ttl more, from now; the first renew means that work has begun.

    Raises: WrongRepo, StaleGeneration, NotOffered, NotAcknowledged, LeaseExpired, LeaseOver.
    """
    _check_holder(lease, repo, generation, now_ms)
    _check(lease, "renew", "running")
    return Move(lease, replace(lease, state="running", deadline_ms=now_ms + lease.ttl_ms), "renew")


def keep(lease: Lease, *, now_ms: int) -> Move:
    """Renew by the kernel's word that the holder lives: also past the deadline, since nobody else has had it.

    Raises: NotAcknowledged, LeaseExpired, LeaseOver unless the lease is held.
    """
    return _move(lease, "renew", "running", deadline_ms=now_ms + lease.ttl_ms)


def checkpoint(lease: Lease, *, repo: str, generation: int, blocked: bool, now_ms: int) -> Move:
    """End the lease with what has been done so far; a blocked one stops until someone looks.

    Raises: as `renew`.
    """
    _check_holder(lease, repo, generation, now_ms)
    to: LeaseState = "stopped" if blocked else "checkpointed"
    return _move(lease, "checkpoint", to, deadline_ms=0, reason="blocked" if blocked else "")


def complete(lease: Lease, *, repo: str, generation: int, now_ms: int) -> Move | Repeat:
    """The work is done. Asking again with the same generation is answered alike.

    A lease that the source completed meanwhile answers the same: both say that the work is done.

    Raises: as `renew`.
    """
    if lease.state == "completed" and lease.repo == repo and lease.generation == generation:
        return Repeat(lease)
    _check_holder(lease, repo, generation, now_ms)
    return _move(lease, "complete", "completed", deadline_ms=0, reason="")


def fail(
    lease: Lease, *, repo: str, generation: int, reason: str, retry: bool, delay_ms: int, now_ms: int
) -> Move | Repeat:
    """The worker says that it cannot: another try after `delay_ms`, or stopped when none is left or wanted.

    Raises: as `renew`.
    """
    if lease.reason in (reason, _used_up(reason)) and (lease.repo, lease.generation) == (repo, generation):
        return Repeat(lease)
    _check_holder(lease, repo, generation, now_ms)
    return _try_again(lease, "fail", reason, delay_ms if retry else None, now_ms)


def expire(lease: Lease, *, reason: str, delay_ms: int, now_ms: int) -> Move:
    """End a live lease whose deadline passed or whose holder died. Raises LeaseOver unless it is live."""
    return _try_again(lease, "expire", reason, delay_ms, now_ms)


def undelivered(lease: Lease, *, reason: str, terminal: bool, delay_ms: int, now_ms: int) -> Move:
    """The transport could not hand the offer over; a terminal failure stops for review."""
    return _try_again(lease, "undelivered", reason, None if terminal else delay_ms, now_ms)


def done(lease: Lease) -> Move:
    """The source says that the work is done, whatever the worker thought."""
    return _move(lease, "done", "completed", deadline_ms=0, reason="source_done")


def stop(lease: Lease, event: LeaseEvent, reason: str) -> Move:
    """Halt the lease until someone looks: supersede, remove, cancel, policy_stop or reconfigure."""
    return _move(lease, event, "stopped", deadline_ms=0, reason=reason)


def is_over(lease: Lease, now_ms: int) -> bool:
    """Whether a live lease has run out; it is already over at its deadline."""
    return lease.state in LIVE and now_ms >= lease.deadline_ms


def _check(lease: Lease, event: LeaseEvent, to: LeaseState) -> None:
    if to not in TRANSITIONS.get((lease.state, event), ()):
        _refuse(lease, event)


def _move(lease: Lease, event: LeaseEvent, to: LeaseState, **changes: object) -> Move:
    _check(lease, event, to)
    return Move(lease, replace(lease, state=to, **changes), event)


def _try_again(lease: Lease, event: LeaseEvent, reason: str, delay_ms: int | None, now_ms: int) -> Move:
    if delay_ms is None:
        return _move(lease, event, "stopped", deadline_ms=0, reason=reason)
    if lease.attempt >= lease.attempts_allowed:
        return _move(lease, event, "stopped", deadline_ms=0, reason=_used_up(reason))
    return _move(lease, event, "retry_wait", deadline_ms=now_ms + delay_ms, reason=reason, anchor="")


def _used_up(reason: str) -> str:
    return f"attempts_used_up:{reason}"  # a code may name its cause behind a colon


def _check_holder(lease: Lease, repo: str, generation: int | None, now_ms: int) -> None:
    if repo != lease.repo:
        raise WrongRepo(
            f"lease {lease.lease_id} is for another repository; name the one it was offered for",
            lease_id=lease.lease_id,
        )
    if generation is not None and generation != lease.generation:
        raise StaleGeneration(
            f"generation {generation} of lease {lease.lease_id} is not the current one; stop, and ask for work anew",
            lease_id=lease.lease_id,
            current=lease.generation,
        )
    if lease.state in LIVE and now_ms >= lease.deadline_ms:
        raise LeaseExpired(
            f"lease {lease.lease_id} ran out {now_ms - lease.deadline_ms} ms ago; stop, and ask for work anew",
            lease_id=lease.lease_id,
            state=lease.state,
        )


def _refuse(lease: Lease, event: LeaseEvent) -> NoReturn:
    lease_id, state = lease.lease_id, lease.state
    if state in TERMINAL:
        why = f" ({lease.reason})" if lease.reason else ""
        raise LeaseOver(f"lease {lease_id} is {state}{why}; ask for other work", lease_id=lease_id, state=state)
    if state == "retry_wait":
        raise LeaseExpired(
            f"lease {lease_id} is over and waits for its next try; stop, and ask for work anew",
            lease_id=lease_id,
            state=state,
        )
    if state in ("pending", "waiting"):
        raise NotOffered(f"lease {lease_id} has not been offered yet", lease_id=lease_id, state=state)
    if state == "offered":
        raise NotAcknowledged(f"acknowledge lease {lease_id} first", lease_id=lease_id, state=state)
    raise LeaseOver(f"cannot {event} lease {lease_id}, which is {state}", lease_id=lease_id, state=state)
