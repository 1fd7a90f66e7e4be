"""What workers do with leases: ack, renew, checkpoint, complete, fail. And what ends one without them.

Every method is a unit of work: it runs inside a write transaction, decides with the pure rules of domain/moves.py,
and writes the outcome with its receipt. What has to happen in memory happens once that is on disk.
"""

import sqlite3
from collections.abc import Callable
from typing import Protocol

import msgspec
from msgspec.structs import replace

from coordd.config.settings import LeaseSettings
from coordd.domain import moves
from coordd.domain.anchor import Anchor
from coordd.domain.checkpoint import Checkpoint, checkpoint_revision
from coordd.domain.errors import NotStopped, Superseded
from coordd.domain.lease import HELD, LIVE, TERMINAL, Lease, LeaseEvent, Move, Repeat
from coordd.domain.trigger import Trigger
from coordd.policy.backoff import retry_delay_ms
from coordd.services.board import Board
from coordd.services.deadlines import Deadlines
from coordd.store import checkpoints, items, leases, reading, triggers
from coordd.store.transaction import Transaction


class Held(msgspec.Struct, frozen=True, gc=False):
    """A lease as the answer shows it."""

    lease: Lease
    repeated: bool = False


class Continued(msgspec.Struct, frozen=True):
    lease: Lease
    continuation: Lease | None  # None: it was blocked
    repeated: bool = False


class Via(Protocol):
    """A client's connection, as far as leases know it."""

    @property
    def ended(self) -> bool: ...


class Anchors(Protocol):
    """What the keeper knows about anchored leases. See services/keeper.py."""

    def alive(self, row: int) -> bool:
        """Whether the lease has an anchor that lives at this instant."""
        ...

    def hold(self, lease: Lease, anchor: Anchor, via: Via | None) -> None: ...

    def release(self, row: int) -> None: ...


class Leasing:
    def __init__(
        self, *, store_name: str, settings: LeaseSettings, board: Board, deadlines: Deadlines, anchors: Anchors
    ) -> None:
        self.store_name = store_name
        self.settings = settings  # replaced on reload
        self._board = board
        self._deadlines = deadlines
        self._anchors = anchors
        self._busy_waits: set[str] = set()  # repositories where a lease may wait for another to end
        # What an item's source says is to be compared with its leases once more: always, or if something was put off
        # while the lease was live.
        self.reconsider: Callable[[Lease], None] = lambda lease: None
        self.ended: Callable[[Lease], None] = lambda lease: None

    # What workers ask.

    def ack(
        self,
        tx: Transaction,
        lease_id: str,
        *,
        repo: str,
        generation: int | None,
        worker: str,
        anchor: Anchor | None,
        via: Via | None,
        actor: str,
    ) -> Held:
        """Args: via: the connection the ack came on. Raises: see `moves.ack`; UnknownLease."""
        lease = self._current(tx, leases.get(tx, lease_id))
        outcome = moves.ack(
            lease,
            repo=repo,
            generation=generation,
            worker=worker,
            anchor="" if anchor is None else str(anchor),
            now_ms=tx.lease_ms,
        )
        if isinstance(outcome, Repeat):
            return Held(outcome.lease, repeated=True)
        after = self._write(tx, outcome, actor)
        if anchor is not None:
            tx.later(self._anchors.hold, after, anchor, via)
        return Held(after)

    def renew(self, tx: Transaction, lease_id: str, *, repo: str, generation: int) -> Held:
        """Raises: see `moves.renew`; UnknownLease."""
        lease = leases.get(tx, lease_id)
        if lease.anchor:
            lease = self._current(tx, lease)
        move = moves.renew(lease, repo=repo, generation=generation, now_ms=tx.lease_ms)
        return Held(self._write(tx, move, worker_of(lease)))

    def complete(self, tx: Transaction, lease_id: str, *, repo: str, generation: int) -> Held:
        """Raises: see `moves.complete`; UnknownLease."""
        lease = leases.get(tx, lease_id)
        if lease.anchor:
            lease = self._current(tx, lease)
        outcome = moves.complete(lease, repo=repo, generation=generation, now_ms=tx.lease_ms)
        if isinstance(outcome, Repeat):
            return Held(outcome.lease, repeated=True)
        return Held(self._write(tx, outcome, worker_of(lease)))

    def fail(self, tx: Transaction, lease_id: str, *, repo: str, generation: int, reason: str, retry: bool) -> Held:
        """Args: reason: the worker's own code. Raises: see `moves.fail`; UnknownLease."""
        lease = self._current(tx, leases.get(tx, lease_id))
        outcome = moves.fail(
            lease,
            repo=repo,
            generation=generation,
            reason="failed" if reason == "failed" else f"failed:{reason}",
            retry=retry,
            delay_ms=self._delay_ms(lease),
            now_ms=tx.lease_ms,
        )
        if isinstance(outcome, Repeat):
            return Held(outcome.lease, repeated=True)
        return Held(self._write(tx, outcome, worker_of(lease)))

    def checkpoint(
        self, tx: Transaction, lease_id: str, *, repo: str, generation: int, document: Checkpoint
    ) -> Continued:
        """End the lease and, unless the worker is blocked, make the one that continues.

        Raises: see `moves.checkpoint`; UnknownLease, CheckpointTooLarge.
        """
        encoded = document.encoded()
        lease = leases.get(tx, lease_id)
        if lease.state in TERMINAL and (lease.repo, lease.generation) == (repo, generation):
            kept = checkpoints.in_transaction(tx, lease.row)
            if kept is not None and kept[0] == encoded:
                after = leases.at_row(tx, kept[1]) if kept[1] is not None else None
                return Continued(lease, after, repeated=True)
        lease = self._current(tx, lease)
        move = moves.checkpoint(lease, repo=repo, generation=generation, blocked=document.blocked, now_ms=tx.lease_ms)
        ended = self._write(tx, move, worker_of(lease))
        if document.blocked:
            checkpoints.keep(tx, ended.row, encoded, None)
            return Continued(ended, None)
        parent_trigger = triggers.trigger_id(tx, lease.trigger)
        trigger = Trigger("checkpoint", parent_trigger, checkpoint_revision(lease.lease_id, encoded), lease.repo)
        following = self.issue(
            tx,
            replace(
                lease,
                source="checkpoint",
                source_id=parent_trigger,
                source_revision=trigger.source_revision,
                parent=lease.row,
                priority=-1,  # half-done work lies in the working tree: first of all
            ),
            trigger,
            actor=worker_of(lease),
        )
        checkpoints.keep(tx, ended.row, encoded, following.row)
        items.point_at(tx, lease.source_name, lease.item_id, following.row)
        return Continued(ended, following)

    # What ends or starts a lease without its worker.

    def issue(self, tx: Transaction, model: Lease, trigger: Trigger, *, actor: str, hold: str | None = None) -> Lease:
        """Make a new lease for a trigger, `pending`, or `waiting` for `hold`.

        Args: model: carries what the lease is about; state, counters and ids are set here.
        """
        at_ms = tx.wall_ms
        lease = replace(
            model,
            state="pending" if hold is None else "waiting",
            generation=0,
            attempt=0,
            attempts_allowed=self.settings.attempts,
            deadline_ms=model.deadline_ms if hold is not None else 0,
            reason=hold or "",
            trigger=triggers.ensure(tx, trigger, at_ms),
            accepted_at_ms=at_ms,
            worker="",
            anchor="",
        )
        lease = leases.insert(tx, lease, store=self.store_name, actor=actor)
        if hold == "repo_busy":
            self._busy_waits.add(lease.repo)  # at once: the lease it waits for may end in this very transaction
        if hold is None:
            tx.later(self._board.hint, lease.repo)
        elif lease.deadline_ms:
            tx.later(self._deadlines.push, lease.deadline_ms, lease.row)
        return lease

    def make_ready(self, tx: Transaction, lease: Lease, actor: str) -> Lease:
        """What a waiting lease waited for has come."""
        after = leases.write(tx, moves.ready(lease), actor=actor)
        tx.later(self._board.hint, after.repo)
        return after

    def expire(self, tx: Transaction, lease: Lease, reason: str, actor: str) -> Lease:
        move = moves.expire(lease, reason=reason, delay_ms=self._delay_ms(lease), now_ms=tx.lease_ms)
        return self._write(tx, move, actor)

    def expire_lapsed(self, tx: Transaction, lease: Lease) -> Lease:
        """End a lease whose deadline has passed."""
        reason = "not_acknowledged" if lease.state == "offered" else "ttl"
        return self.expire(tx, lease, reason, "daemon:reaper")

    def keep(self, tx: Transaction, lease: Lease) -> Lease:
        """Renew for an anchor that lives. Raises LeaseOver unless the lease is acknowledged or running."""
        return self._write(tx, moves.keep(lease, now_ms=tx.lease_ms), "daemon:keeper")

    def let_go(self, tx: Transaction, lease: Lease) -> Lease:
        """Untie a lease from a connection that our own restart closed, with one fresh ttl."""
        move = moves.keep(lease, now_ms=tx.lease_ms)
        return self._write(tx, replace(move, after=replace(move.after, anchor="")), "daemon:keeper")

    def undelivered(self, tx: Transaction, lease: Lease, reason: str, *, terminal: bool, actor: str) -> Lease:
        move = moves.undelivered(
            lease, reason=reason, terminal=terminal, delay_ms=self._delay_ms(lease), now_ms=tx.lease_ms
        )
        return self._write(tx, move, actor)

    def finish(self, tx: Transaction, lease: Lease, actor: str) -> Lease:
        """The source says that the work is done."""
        return self._write(tx, moves.done(lease), actor)

    def stop(self, tx: Transaction, lease: Lease, event: LeaseEvent, reason: str, actor: str) -> Lease:
        return self._write(tx, moves.stop(lease, event, reason), actor)

    def cancel(self, tx: Transaction, lease_id: str, reason: str, actor: str) -> Held:
        """An operator ends a lease. Raises UnknownLease, LeaseOver."""
        code = "cancelled" if reason == "cancelled" else f"cancelled:{reason}"
        return Held(self.stop(tx, leases.get(tx, lease_id), "cancel", code, actor))

    def retry(self, tx: Transaction, lease_id: str, actor: str) -> Held:
        """An operator has looked at a stopped lease: a new one for the same trigger, with all its attempts.

        Raises: UnknownLease, NotStopped, Superseded: a later lease of the same work exists.
        """
        lease = leases.get(tx, lease_id)
        if lease.state != "stopped":
            raise NotStopped(f"lease {lease_id} is {lease.state}; only a stopped one is retried", state=lease.state)
        latest = items.lease_of(tx, lease.source_name, lease.item_id)
        if latest is not None and latest != lease.row:
            newer = leases.at_row(tx, latest)
            name = newer.lease_id if newer else str(latest)
            raise Superseded(f"lease {name} of the same work is newer; see `coordctl show {name}`", lease_id=name)
        leases.put_aside(tx, lease)
        trigger = Trigger(lease.source, lease.source_id, lease.source_revision, lease.repo)
        busy = leases.holder(tx, lease.repo) is not None
        model = replace(lease, parent=lease.parent, ttl_ms=lease.ttl_ms)
        after = self.issue(tx, model, trigger, actor=actor, hold="repo_busy" if busy else None)
        items.point_at(tx, lease.source_name, lease.item_id, after.row)
        return Held(after)

    def is_kept(self, lease: Lease) -> bool:
        """Whether a held lease has an anchor that lives: past its deadline, too, nobody else may have it."""
        return lease.anchor != "" and lease.state in HELD and self._anchors.alive(lease.row)

    def is_lapsed(self, tx: Transaction, lease: Lease) -> bool:
        """Whether a live lease is over by the clock and by the kernel's word."""
        return moves.is_over(lease, tx.lease_ms) and not self.is_kept(lease)

    def _current(self, tx: Transaction, lease: Lease) -> Lease:
        """The lease, renewed first where only the keeper is late."""
        if self.is_kept(lease) and moves.is_over(lease, tx.lease_ms):
            return self.keep(tx, lease)
        return lease

    def _delay_ms(self, lease: Lease) -> int:
        return retry_delay_ms(lease.attempt, self.settings.delays_s)

    def _write(self, tx: Transaction, move: Move, actor: str) -> Lease:
        """Write a move of an existing lease, and arrange for what follows from its end."""
        before = move.before
        after = leases.write(tx, move, actor=actor)
        if after.state in LIVE:
            return after
        assert before is not None
        if before.state in LIVE:
            if after.repo in self._busy_waits:
                for lease in leases.waiting_for(tx, after.repo, "repo_busy"):
                    self.make_ready(tx, lease, actor)
            tx.later(self._freed, after)
        elif after.state in TERMINAL:
            tx.later(self.ended, after)
        if after.state == "retry_wait":
            tx.later(self._deadlines.push, after.deadline_ms, after.row)
        return after

    def load(self, connection: sqlite3.Connection) -> None:
        """After a start."""
        self._busy_waits = reading.repos_waiting(connection, "repo_busy")

    def _freed(self, lease: Lease) -> None:
        self._anchors.release(lease.row)
        self._board.hint(lease.repo)
        self.ended(lease)


def worker_of(lease: Lease) -> str:
    """The actor of what a lease's worker asks."""
    return f"worker:{lease.worker}" if lease.worker else "worker"
