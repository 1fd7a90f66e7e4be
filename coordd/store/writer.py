"""Group commit: every unit of work that waits is committed together, and only then answered.

The statements of a group run on the event loop, and so does its commit while the disk is fast: a thread costs more
than the disk then. Where commits take longer, a thread makes those of larger groups and rings a bell that the loop
listens to. Measured in docs/architecture.md#group-commit.
"""

import logging
import os
import sqlite3
import sys
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from time import perf_counter
from typing import Any, Final, Generic, Protocol, TypeVar

import trio
from outcome import Error, Outcome, Value

from coordd.domain.errors import WriteConflict
from coordd.domain.receipt import Values
from coordd.store.connection import BUSY_TIMEOUT_S, unavailable
from coordd.store.transaction import Effect, Transaction

log = logging.getLogger(__name__)

T = TypeVar("T")

INLINE_UNITS: Final = 8  # a group of so few is committed on the loop in any case
FAST_COMMIT_S: Final = 0.001  # and one of any size while commits take less than this
GROUP_UNITS: Final = 512
RETRY_S: Final = 0.02


_RING: Final = (1).to_bytes(8, sys.byteorder)


class Unit(Protocol):
    """A piece of work for the next transaction.

    `run` may be called again when the transaction is undone because of another unit, so it changes nothing but the
    transaction. Exactly one of `succeed` and `fail` follows, on the event loop.
    """

    def run(self, tx: Transaction) -> Any: ...

    def succeed(self, result: Any) -> None: ...

    def fail(self, error: Exception) -> None: ...


class Writer:
    """Owns the write connection. Units run in the order in which they were submitted."""

    def __init__(self, connection: sqlite3.Connection, tx: Transaction, *, threaded: bool) -> None:
        self._connection = connection
        self._tx = tx
        self._durable = (tx.seq, tx.hash)  # the chain's end as it is on disk
        self._waiting: deque[Unit] = deque()
        self._flight: list[tuple[Unit, Any]] | None = None  # its commit is under way
        self._bell = trio.Event()
        self._bell_taken = False
        self._bell_back = trio.Event()
        self._listening = trio.CancelScope()
        self._locked_since: float | None = None
        self._outcome: Outcome[float] | None = None
        self._jobs: SimpleQueue[bool] = SimpleQueue()
        self._thread: Thread | None = None
        self.commits = 0
        self.publish: Callable[[list[Values]], None] = _nobody
        self.settled: Callable[[], None] = _nothing  # a group has been answered
        self._commit_s = 0.0  # how long a commit on the loop takes, smoothed
        if threaded:
            self._done_r, self._done_w = _bell_pair()
            self._thread = Thread(target=self._commit_in_thread, name="commit", daemon=True)
            self._thread.start()

    def submit(self, unit: Unit) -> None:
        """Queue a unit; `pump` or the running loop starts it."""
        self._waiting.append(unit)

    def ring(self) -> None:
        """Let the running loop pump soon."""
        self._bell.set()

    def withdraw(self, unit: Unit) -> bool:
        """Take back a unit that has not been started. Returns whether that was so."""
        try:
            self._waiting.remove(unit)
        except ValueError:
            return False
        return True

    def pump(self) -> None:
        """Commit groups until none waits, or one is with the thread."""
        if self._outcome is not None:
            done = self._collect()
            if done is not None:
                # A large group goes to the disk before the last one is answered: the two then overlap.
                if len(self._waiting) > INLINE_UNITS:
                    self._start_group()
                self._answer(*done)
        while self._waiting and self._flight is None and self._start_group():
            pass

    def take_bell(self) -> int | None:
        """The descriptor that becomes readable when the thread has committed; None without a thread.

        Whoever takes it waits for it instead of `run`, which saves a task switch per group, and calls `answered`
        when it rings, until `give_bell_back`.
        """
        if self._thread is None:
            return None
        self._bell_taken = True
        self._listening.cancel()
        return self._done_r

    @property
    def in_flight(self) -> bool:
        """Whether a group is with the thread."""
        return self._flight is not None

    def give_bell_back(self) -> None:
        self._bell_taken = False
        self._bell_back.set()

    def answered(self) -> None:
        """The bell has rung: collect, and start the next group."""
        try:
            os.read(self._done_r, 8)
        except BlockingIOError:
            return  # somebody was faster
        self.pump()

    async def run(self) -> None:
        """Serve until cancelled: collect finished commits and start the next."""
        async with trio.open_nursery() as nursery:
            if self._thread is not None:
                nursery.start_soon(self._listen)
            while True:
                await self._bell.wait()
                self._bell = trio.Event()
                self.pump()
                if self._locked_since is not None:
                    await trio.sleep(RETRY_S)
                    self._bell.set()

    async def write(self, work: "Work[T]") -> T:
        """Run `work(tx)` in the next transaction and return its result once that is on disk.

        When the caller is cancelled the unit commits whole or never starts.

        Raises:
            CoordError: as `work` raised it; nothing of the unit is kept.
            StoreUnavailable: the commit failed; nothing of the group is kept or answered.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        unit: _TaskUnit[T] = _TaskUnit(work, trio.lowlevel.current_task())
        self.submit(unit)
        if self._thread is None:
            self.pump()
            await trio.lowlevel.cancel_shielded_checkpoint()
            while unit.outcome is None:  # locked by another program
                await trio.sleep(RETRY_S)
                self.pump()
            return unit.outcome.unwrap()
        self.ring()
        if unit.outcome is None:
            unit.parked = True

            def abort(_: object) -> trio.lowlevel.Abort:
                return trio.lowlevel.Abort.SUCCEEDED if self.withdraw(unit) else trio.lowlevel.Abort.FAILED

            await trio.lowlevel.wait_task_rescheduled(abort)
        assert unit.outcome is not None
        return unit.outcome.unwrap()

    async def finish(self) -> None:
        """Commit what waits, end the thread and close the connection. Nothing may be submitted afterwards."""
        with trio.CancelScope(shield=True):
            while self._waiting or self._flight is not None:
                self.pump()
                if self._flight is not None and self._outcome is None:
                    await trio.sleep(0.001)
                elif self._locked_since is not None:
                    await trio.sleep(RETRY_S)
        self.close()

    def close(self) -> None:
        if self._thread is not None:
            self._jobs.put(False)
            self._thread.join()
            for fd in {self._done_r, self._done_w}:
                os.close(fd)
            self._thread = None
        self._connection.close()

    async def _listen(self) -> None:
        while True:
            if self._bell_taken:
                self._bell_back = trio.Event()
                await self._bell_back.wait()
            with trio.CancelScope() as self._listening:
                while True:
                    await trio.lowlevel.wait_readable(self._done_r)
                    self.answered()

    def _start_group(self) -> bool:
        """Run one group. False when its turn has not come: the database is locked."""
        tx, waiting = self._tx, self._waiting
        try:
            tx.begin()
        except sqlite3.Error as error:
            return self._cannot_begin(error)
        self._locked_since = None
        size = min(len(waiting), GROUP_UNITS)
        units = [waiting.popleft() for _ in range(size)]
        try:
            results = self._run_group(units)
        except sqlite3.Error as error:
            self._fail_group(units, error)
            return True
        if self._thread is None or size <= INLINE_UNITS or self._commit_s < FAST_COMMIT_S:
            began = perf_counter()
            try:
                tx.execute("commit")
            except sqlite3.Error as error:
                self._fail_group(units, error)
                return True
            self._note_commit(perf_counter() - began)
            self._answer(*self._settle(results))
            return True
        self._flight = results
        self._jobs.put(True)
        return False

    def _run_group(self, units: list[Unit]) -> list[tuple[Unit, Any]]:
        """Everything of a group but its commit."""
        tx, connection, results = self._tx, self._connection, []
        for unit in units:
            changes = connection.total_changes
            seq = tx.seq
            try:
                results.append((unit, unit.run(tx)))
            except sqlite3.Error:
                raise
            except Exception as error:
                if connection.total_changes != changes or tx.seq != seq:
                    # A refusal comes before the first write as a rule. This one came after, so the unit has to be
                    # undone alone: once more, with savepoints, which the others do not pay for otherwise.
                    return self._run_with_savepoints(units)
                results.append((unit, _Failed(error)))
        try:
            tx.flush()
        except WriteConflict:
            log.warning("a group of %d units is run again one by one: a row was not as expected", len(units))
            return self._run_with_savepoints(units)
        return results

    def _run_with_savepoints(self, units: list[Unit]) -> list[tuple[Unit, Any]]:
        tx, results = self._tx, []
        self._undo_all()
        tx.begin()
        tx.slots.at_once = True
        try:
            for unit in units:
                mark = tx.mark()
                tx.execute("savepoint unit")
                try:
                    results.append((unit, unit.run(tx)))
                except sqlite3.Error:
                    raise
                except Exception as error:
                    tx.undo(mark)
                    tx.execute("rollback to unit")
                    results.append((unit, _Failed(error)))
                tx.execute("release unit")
            tx.flush()
        finally:
            tx.slots.at_once = False
        return results

    def _commit_in_thread(self) -> None:
        commit = self._connection.execute
        while self._jobs.get():
            try:
                began = perf_counter()
                commit("commit")
                self._outcome = Value(perf_counter() - began)
            except sqlite3.Error as error:
                self._outcome = Error(error)
            os.write(self._done_w, _RING)

    def _collect(self) -> "Settled | None":
        """Take in what the thread has done. None when it failed, and everyone has been told."""
        outcome, results = self._outcome, self._flight
        self._outcome = self._flight = None
        assert results is not None
        if isinstance(outcome, Error):
            assert isinstance(outcome.error, sqlite3.Error)
            self._fail_group([unit for unit, _ in results], outcome.error)
            return None
        assert isinstance(outcome, Value)
        self._note_commit(outcome.value)
        return self._settle(results)

    def _note_commit(self, seconds: float) -> None:
        self._commit_s += (seconds - self._commit_s) / 16

    def _settle(self, results: list[tuple[Unit, Any]]) -> "Settled":
        """The group is on disk."""
        self._durable = (self._tx.seq, self._tx.hash)
        self.commits += 1
        receipts, effects = self._tx.settled()
        return results, receipts, effects

    def _answer(self, results: list[tuple[Unit, Any]], receipts: list[Values], effects: list[Effect]) -> None:
        for unit, result in results:
            if type(result) is _Failed:
                unit.fail(result.error)
            else:
                unit.succeed(result)
        self.settled()
        if receipts:
            self.publish(receipts)
        for effect, arguments in effects:
            try:
                effect(*arguments)
            except Exception:  # what is on disk stays answered; a bug in one effect must not stop the others
                log.exception("an effect of a committed transaction failed")

    def _fail_group(self, units: list[Unit], error: sqlite3.Error) -> None:
        self._undo_all()
        refusal = unavailable(error)
        log.error("a commit of %d units failed: %s (%s)", len(units), refusal.detail["cause"], _error_name(error))
        for unit in units:
            unit.fail(refusal)
        self.settled()

    def _undo_all(self) -> None:
        tx = self._tx
        if self._connection.in_transaction:
            try:
                tx.execute("rollback")
            except sqlite3.Error as error:  # SQLite had rolled back by itself already
                log.warning("rollback after a failed transaction: %s", _error_name(error))
        tx.undo_all(*self._durable)

    def _cannot_begin(self, error: sqlite3.Error) -> bool:
        now = trio.current_time()
        refusal = unavailable(error)
        if refusal.detail["cause"] == "locked":
            if self._locked_since is None:
                self._locked_since = now
            if now - self._locked_since < BUSY_TIMEOUT_S:
                self._bell.set()
                return False
        self._locked_since = None
        units = list(self._waiting)
        self._waiting.clear()
        log.error("no transaction could begin: %s (%s)", refusal.detail["cause"], _error_name(error))
        for unit in units:
            unit.fail(refusal)
        self.settled()
        return True


Settled = tuple[list[tuple[Unit, Any]], list[Values], list[Effect]]


class Work(Protocol[T]):  # type: ignore[misc]  # T is only returned, and Protocol wants it declared covariant
    def __call__(self, tx: Transaction, /) -> T: ...


class _TaskUnit(Generic[T]):
    """A unit whose caller is a task that waits."""

    __slots__ = ("outcome", "parked", "run", "task")

    def __init__(self, work: Work[T], task: trio.lowlevel.Task) -> None:
        self.run = work
        self.task = task
        self.outcome: Outcome[T] | None = None
        self.parked = False

    def succeed(self, result: T) -> None:
        self._settle(Value(result))

    def fail(self, error: Exception) -> None:
        self._settle(Error(error))

    def _settle(self, outcome: Outcome[T]) -> None:
        self.outcome = outcome
        if self.parked:
            trio.lowlevel.reschedule(self.task)


class _Failed:
    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


def _bell_pair() -> tuple[int, int]:
    """The two ends of the thread's bell; one descriptor where the kernel has eventfd."""
    if hasattr(os, "eventfd"):
        fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        return fd, fd
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    return reading, writing


def _nothing() -> None: ...


def _nobody(receipts: list[Values]) -> None:
    """Until someone follows."""


def _error_name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", None) or type(error).__name__
