"""The schema, as a sequence of migrations, and the one way to bring a file up to it.

Importing sqlite-utils costs an idle daemon 4 MiB, so `prepare` runs it in a process of its own that ends; only
this module imports it. Source: docs/architecture.md#memory
"""

import json
import os
import secrets
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Final

from coordd.domain.errors import StoreRefused
from coordd.store.backup import snapshot
from coordd.store.connection import OLDEST_SQLITE, unavailable

if TYPE_CHECKING:
    from sqlite_utils import Database, Migrations

SCHEMA_VERSION: Final = 1
APPLICATION_ID: Final = 0x434F4F52  # "COOR" in the file's header: another program's database is not taken for ours

SCHEMA_1: Final = """
create table meta (
    key text primary key,
    value text not null
) strict, without rowid;

create table configurations (
    id integer primary key,
    version text not null unique,
    policy text not null,
    first_seen_ms integer not null
) strict;

-- A repository and whoever holds it: the promise of one holder is kept by the database itself, because a row has room
-- for one. What changes while a lease is live changes here, so that a renewal touches a few pages, not one per lease.
create table repositories (
    name text primary key,
    generation integer not null default 0,
    lease integer references leases (row),
    state text,
    attempt integer,
    deadline_ms integer,
    receipt integer,
    worker text not null default '',
    anchor text not null default '',
    paused integer not null default 0,
    completed integer not null default 0,
    checkpointed integer not null default 0,
    stopped integer not null default 0,
    check ((lease is null) = (state is null)),
    check (state is null or state = 'offered' or state = 'acknowledged' or state = 'running')
) strict, without rowid;

create table triggers (
    id integer primary key,
    trigger_id text not null unique,
    source text not null check (source in ('task', 'message', 'checkpoint')),
    source_id text not null,
    source_revision text not null,
    repo text not null,
    accepted_at_ms integer not null,
    unique (source, source_id, source_revision, repo)
) strict;

-- `phase` groups the states of what is not live; the indexes stand on it, and the check keeps it true: 1 pending,
-- 2 waiting, 3 retry_wait, 5 stopped and to be looked at, 6 over. A live lease's row stays as it was when it was
-- offered: what changes then is in `repositories`.
create table leases (
    row integer primary key,
    lease_id text not null,
    repo text not null references repositories (name),
    state text not null,
    phase integer not null,
    generation integer not null,
    attempt integer not null,
    attempts_allowed integer not null,
    ttl_ms integer not null,
    deadline_ms integer not null,
    reason text not null,
    receipt integer not null,
    source text not null,
    source_name text not null,
    source_id text not null,
    source_revision text not null,
    "trigger" integer not null references triggers (id),
    item_id text not null,
    item_revision text not null,
    item_digest text not null,
    parent integer references leases (row),
    priority integer not null,
    config integer not null references configurations (id),
    accepted_at_ms integer not null,
    worker text not null,
    anchor text not null,
    check (
        (phase = 1 and state = 'pending')
        or (phase = 2 and state = 'waiting')
        or (phase = 3 and state = 'retry_wait')
        or (phase = 5 and state = 'stopped')
        or (phase = 6 and (state = 'completed' or state = 'checkpointed' or state = 'stopped'))
    )
) strict;

create index pending_leases on leases (row) where phase = 1;
create index waiting_leases on leases (repo, row) where phase = 2;
create index retrying_leases on leases (repo, deadline_ms, row) where phase = 3;
create index stopped_leases on leases (row) where phase = 5;

create view current_leases as select
    l.row, l.lease_id, l.repo, coalesce(r.state, l.state) as state,
    case when r.state is null then l.phase else 4 end as phase,
    case when r.state is null then l.generation else r.generation end as generation,
    coalesce(r.attempt, l.attempt) as attempt, l.attempts_allowed, l.ttl_ms,
    coalesce(r.deadline_ms, l.deadline_ms) as deadline_ms,
    case when r.state is null then l.reason else '' end as reason,
    coalesce(r.receipt, l.receipt) as receipt, l.source, l.source_name, l.source_id, l.source_revision, l."trigger",
    l.item_id, l.item_revision, l.item_digest, l.parent, l.priority, l.config, l.accepted_at_ms,
    case when r.state is null then l.worker else r.worker end as worker,
    case when r.state is null then l.anchor else r.anchor end as anchor
from leases l left join repositories r on r.name = l.repo and r.lease = l.row;

create table receipts (
    seq integer primary key,
    lease integer not null,
    event text not null,
    from_state text not null,
    to_state text not null,
    at_ms integer not null,
    generation integer not null,
    attempt integer not null,
    deadline_ms integer not null,
    reason text not null,
    actor text not null,
    config integer not null,
    previous integer not null,
    hash blob not null
) strict;

create table checkpoints (
    lease integer primary key references leases (row),
    document text not null,
    continuation integer references leases (row)
) strict;

-- What each source showed at its last complete snapshot: ids, states and reasons, never a title or a text.
create table items (
    source_name text not null,
    item_id text not null,
    kind text not null,
    repo text not null,
    revision text not null,
    digest text not null,
    status text not null,
    outcome text not null,
    code text not null,
    rules text not null,
    until_ms integer,
    priority integer not null,
    lease integer,
    reopened integer not null,
    worked integer not null,
    fingerprint text not null,
    primary key (source_name, item_id)
) strict, without rowid;

create table sources (
    name text primary key,
    kind text not null,
    last_success_ms integer,
    error text,
    failures integer not null default 0,
    items integer not null default 0,
    problems text not null default '[]'
) strict, without rowid;
"""


def prepare(path: str) -> None:
    """Bring the file at `path` to this version's schema, creating it if need be.

    What exists is copied to `PATH.before-N` first; the change itself is one transaction. Call it under the lock.

    Raises: StoreRefused: a newer schema, another program's file, a damaged one, or a failed migration.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreRefused(f"SQLite {sqlite3.sqlite_version} is too old, 3.37 is needed; use a newer Python build")
    if current_version(path) == SCHEMA_VERSION:
        return
    done = subprocess.run(
        [sys.executable, "-I", "-m", "coordd.store.migrations", path], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        try:
            message = json.loads(done.stdout)["message"]
        except (ValueError, KeyError, TypeError):
            message = f"the migration of {path} failed:\n{done.stderr.strip()}"
        raise StoreRefused(message)


def current_version(path: str) -> int:
    """The schema version of the file, 0 for none yet.

    Raises: StoreRefused: it is newer than this program, damaged, or not ours.
    """
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        return 0
    try:
        # No `-wal` of a crashed run is touched before the version is known to be ours, hence read-only.
        with closing(sqlite3.connect(path, isolation_level=None, timeout=5)) as connection:
            version = connection.execute("pragma user_version").fetchone()[0]
            application = connection.execute("pragma application_id").fetchone()[0]
            empty = connection.execute("select count(*) from sqlite_master").fetchone()[0] == 0
    except sqlite3.Error as error:
        refusal = unavailable(error)
        raise StoreRefused(f"{path} cannot be read: {refusal}", cause=refusal.detail["cause"]) from error
    if application == 0 and version == 0 and empty:
        return 0  # a first start that was killed before its one transaction
    if application != APPLICATION_ID:
        raise StoreRefused(f"{path} is not a coordd store; name another state directory", cause="foreign")
    if version > SCHEMA_VERSION:
        raise StoreRefused(
            f"{path} has schema {version} and this coordd knows up to {SCHEMA_VERSION}; run the newer coordd that "
            "wrote it, or restore an older backup",
            cause="newer_schema",
        )
    return int(version)


def migrate(path: str, migrations: "Migrations | None" = None, version: int = SCHEMA_VERSION) -> None:
    """Apply what is missing, in this process. `migrations` and `version` are for the tests of an upgrade.

    Raises: StoreRefused: as `prepare`; the file then reads as before.
    """
    from sqlite_utils import Database

    before = current_version(path)
    fresh = before == 0
    umask = os.umask(0o077)  # the file, its -wal and its -shm are for this user only from the first byte on
    try:
        connection = sqlite3.connect(path, isolation_level=None)
    finally:
        os.umask(umask)
    with closing(connection):
        try:
            connection.execute("pragma journal_mode = wal").fetchall()
            if not fresh:
                snapshot(path, f"{path}.before-{version}", replace=True)
            database = Database(connection, execute_plugins=False)
            connection.execute("begin immediate")
            (migrations or _migrations()).apply(database)
            connection.execute(f"pragma application_id = {APPLICATION_ID}")
            connection.execute(f"pragma user_version = {version}")
            connection.execute("commit")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("rollback")
            raise StoreRefused(
                f"{path} could not be migrated from schema {before} to {version} and reads as before: {error}",
                cause=unavailable(error).detail["cause"],
            ) from error


def _migrations() -> "Migrations":
    from sqlite_utils import Migrations

    migrations = Migrations("coordd")

    @migrations(name="1_leases")
    def _leases(database: "Database") -> None:
        for statement in SCHEMA_1.split(";\n"):
            if statement.strip():
                database.execute(statement)
        # Part of every lease id, so that ids of two stores, or of a store and its restored past, never meet.
        database.execute("insert into meta values ('store', ?)", [new_store_name()])

    return migrations


def new_store_name() -> str:
    return "".join(secrets.choice("abcdefghjkmnpqrstuvwxyz23456789") for _ in range(5))


def main() -> int:
    try:
        migrate(sys.argv[1])
    except StoreRefused as refusal:
        print(json.dumps({"message": str(refusal)}))  # noqa: T201  # the parent's only way to learn why
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
