"""Triggers and configurations: what leases are made from and under."""

from coordd.domain.trigger import Trigger
from coordd.store.transaction import Transaction


def ensure(tx: Transaction, trigger: Trigger, at_ms: int) -> int:
    """The row of a trigger, which the database keeps unique over its tuple."""
    key = (trigger.source, trigger.source_id, trigger.source_revision, trigger.repo)
    found = tx.execute(
        "select id from triggers where source = ? and source_id = ? and source_revision = ? and repo = ?", key
    ).fetchone()
    if found is not None:
        return int(found[0])
    return int(
        tx.execute(
            "insert into triggers (trigger_id, source, source_id, source_revision, repo, accepted_at_ms)"
            " values (?, ?, ?, ?, ?, ?) returning id",
            (trigger.trigger_id, *key, at_ms),
        ).fetchall()[0][0]
    )


def trigger_id(tx: Transaction, row: int) -> str:
    return str(tx.execute("select trigger_id from triggers where id = ?", (row,)).fetchone()[0])


def configuration(tx: Transaction, version: str, policy: str, at_ms: int) -> int:
    """The row of a configuration version."""
    found = tx.execute("select id from configurations where version = ?", (version,)).fetchone()
    if found is not None:
        return int(found[0])
    return int(
        tx.execute(
            "insert into configurations (version, policy, first_seen_ms) values (?, ?, ?) returning id",
            (version, policy, at_ms),
        ).fetchall()[0][0]
    )
