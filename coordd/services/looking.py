"""Reads for people and programs: status, lists, one lease, history. Never in the writer's way."""

import sqlite3
from typing import Final

import msgspec

from coordd.config.settings import Settings
from coordd.domain.clock import Clock
from coordd.domain.lease import LIVE, Lease
from coordd.domain.receipt import Receipt
from coordd.services.board import Board
from coordd.services.gates import Gates
from coordd.store import checkpoints, reading, repositories, sources
from coordd.store.repositories import Tally
from coordd.store.sources import SourceState

REPOS_SHOWN: Final = 1000
ATTENTION_SHOWN: Final = 50


SourceLook = SourceState


class LeaseLook(msgspec.Struct, frozen=True):
    """A lease with what stands beside it in the store."""

    lease: Lease
    since_ms: int  # wall time of its last receipt
    over: bool  # live by its row, and past its deadline
    parent_id: str | None = None


class LeaseDetail(msgspec.Struct, frozen=True):
    look: LeaseLook
    trigger_id: str
    config_version: str
    checkpoint: bytes | None
    parent_checkpoint: bytes | None
    continuation: str | None


class RepoLook(msgspec.Struct, frozen=True):
    name: str
    transport: str
    path: str
    gate: str | None
    live: LeaseLook | None
    pending: int
    waiting: int
    retrying: int
    tally: Tally


class Overview(msgspec.Struct, frozen=True):
    counts: dict[str, int]
    repos: list[RepoLook]
    repos_total: int
    sources: list[SourceState]
    attention: list[LeaseLook]
    workers_waiting: int


class Looking:
    def __init__(self, *, clock: Clock, gates: Gates, board: Board, settings: Settings) -> None:
        self._clock = clock
        self._gates = gates
        self._board = board
        self.settings = settings  # replaced on reload

    def overview(self, connection: sqlite3.Connection) -> Overview:
        """Everything at a glance. Its cost grows with the repositories and the open leases, not with history."""
        tallies = repositories.tallies(connection)
        open_counts = reading.open_by_repo(connection)
        live = {row[0].repo: self._look(row) for row in reading.live(connection)}
        configured = {repo.name: repo for repo in self.settings.repo}
        names = sorted(
            {*configured, *live, *open_counts}, key=lambda name: (name not in live, name not in open_counts, name)
        )
        repos = []
        for name in names[:REPOS_SHOWN]:
            repo = configured.get(name)
            gate = self._gates.of_repo(name)
            pending, waiting, retrying = open_counts.get(name, (0, 0, 0))
            repos.append(
                RepoLook(
                    name,
                    repo.transport if repo else "-",
                    repo.path if repo else "",
                    gate.code if gate else None,
                    live.get(name),
                    pending,
                    waiting,
                    retrying,
                    tallies.get(name) or Tally(name, 0, False, 0, 0, 0),
                )
            )
        states = {"offered": 0, "acknowledged": 0, "running": 0}
        for look in live.values():
            states[look.lease.state] += 1
        sums = [sum(column) for column in zip(*open_counts.values(), strict=True)] or [0, 0, 0]
        kept = sources.all_states(connection)
        return Overview(
            counts={
                "pending": sums[0],
                "waiting": sums[1],
                "retry_wait": sums[2],
                **states,
                "completed": sum(tally.completed for tally in tallies.values()),
                "checkpointed": sum(tally.checkpointed for tally in tallies.values()),
                "stopped": sum(tally.stopped for tally in tallies.values()),
                "attention": reading.attention(connection),
            },
            repos=repos,
            repos_total=len(names),
            sources=[
                kept.get(source.name) or SourceState(source.name, source.kind, None, None, 0, 0, "[]")
                for source in self.settings.source
            ],
            attention=[self._look(row) for row in reading.stopped(connection, ATTENTION_SHOWN)],
            workers_waiting=self._board.waiting(),
        )

    def leases(
        self,
        connection: sqlite3.Connection,
        *,
        states: list[str] | None,
        repo: str | None,
        source: str | None,
        after: int,
        limit: int,
    ) -> tuple[list[LeaseLook], int | None]:
        """One page, oldest first, and where the next begins. Without states: what is open, or stopped for someone."""
        rows = reading.page(connection, states=states, repo=repo, source=source, after=after, limit=limit)
        looks = [self._look(row) for row in rows]
        return looks, looks[-1].lease.row if len(looks) == limit else None

    def show(self, connection: sqlite3.Connection, lease_id: str) -> LeaseDetail:
        """Raises: UnknownLease."""
        lease = reading.find(connection, lease_id)
        look = self.at_row(connection, lease.row)
        assert look is not None, "it was found a line above, in the same view"
        trigger, version = reading.trigger_and_config(connection, lease)
        parent = checkpoints.of(connection, lease.parent) if lease.parent is not None else None
        return LeaseDetail(
            look,
            trigger,
            version,
            checkpoints.of(connection, lease.row),
            parent,
            reading.continuation(connection, lease.row),
        )

    def history(
        self, connection: sqlite3.Connection, *, lease_id: str | None, repo: str | None, after: int, limit: int
    ) -> list[Receipt]:
        """Raises: UnknownLease."""
        row = None if lease_id is None else reading.find(connection, lease_id).row
        return reading.receipts(connection, lease=row, repo=repo, after=after, limit=limit)

    def last_seq(self, connection: sqlite3.Connection) -> int:
        return reading.last_seq(connection)

    def at_row(self, connection: sqlite3.Connection, row: int) -> LeaseLook | None:
        found = reading.at_row(connection, row)
        return None if found is None else self._look(found)

    def holder(self, connection: sqlite3.Connection, repo: str) -> str | None:
        """The id of the live lease of a repository."""
        return reading.holder(connection, repo)

    def _look(self, row: reading.LeaseRow) -> LeaseLook:
        lease, since_ms, parent_id = row
        over = lease.state in LIVE and self._clock.lease_ms() >= lease.deadline_ms
        return LeaseLook(lease, since_ms, over, parent_id)
