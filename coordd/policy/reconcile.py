"""What a source's latest word about an item means for its leases. Pure.

The ground rules: a revision is run once; a new one is judged anew; a stop that was a judgement is never undone by
itself; a lease that is being worked on is not taken away for a mere new revision.
"""

from typing import Final, Literal

import msgspec

from coordd.domain.lease import LIVE, PASSING_STOPS, TERMINAL, Lease
from coordd.policy.eligibility import Assessment

# What holds a lease that is eligible; what lifts it makes the lease ready, not the source's next word.
HOLDS: Final[frozenset[str]] = frozenset({"repo_busy", "paused", "path_missing"})

Ending = Literal["done", "supersede", "remove", "policy_stop", "reconfigure"]


class Verdict(msgspec.Struct, frozen=True):
    """What to do, in this order: end the lease that is there, make it ready, issue a new one."""

    end: Ending | None = None
    end_reason: str = ""
    ready: bool = False
    issue: Literal["pending", "waiting", "stopped"] | None = None
    issue_reason: str | None = None  # what it waits for, or why it is stopped at once
    inherit: bool = False  # the new lease continues the checkpoint that the ended one was to continue


NOTHING: Final = Verdict()


def decide(item: Assessment, lease: Lease | None, *, config: int, reopened: bool) -> Verdict:
    """Compare what is wanted with the latest lease of the item.

    Args:
        lease: the item's latest, of whatever revision, or None.
        config: the configuration version that a new lease would be made under.
        reopened: the source has shown the item as over, or as waiting, since that lease was made.
    """
    if lease is None or lease.state in TERMINAL:
        if lease is not None and not _may_follow(item, lease, config, reopened):
            return NOTHING
        return _issue(item)
    if item.outcome == "done":
        return Verdict(end="done")
    if item.outcome == "cancelled":
        return Verdict(end="remove", end_reason="source_cancelled")
    if item.outcome == "stop":
        return Verdict(end="policy_stop", end_reason=item.code)
    if lease.state in LIVE:
        return NOTHING  # what its worker began, it may finish
    if item.outcome == "none":
        return Verdict(end="remove", end_reason="not_selected" if item.code == "not_selected" else "superseded")
    changed = lease.item_revision != item.revision
    if changed or lease.config != config:
        issue = _issue(item)
        return Verdict(
            end="supersede" if changed else "reconfigure",
            end_reason="superseded" if changed else "config_changed",
            issue=issue.issue,
            issue_reason=issue.issue_reason,
            inherit=lease.parent is not None,
        )
    if lease.state == "waiting":
        return Verdict(ready=True) if item.outcome == "eligible" and lease.reason not in HOLDS else NOTHING
    if item.outcome == "wait" and item.code == "taken_at_source" and lease.attempt == 0:
        return Verdict(end="supersede", end_reason="taken_at_source", issue="waiting", issue_reason="taken_at_source")
    return NOTHING


def gone(lease: Lease | None) -> Verdict:
    """The item is no longer in its source."""
    if lease is None or lease.state in TERMINAL:
        return NOTHING
    return Verdict(end="remove", end_reason="source_removed")


def _may_follow(item: Assessment, lease: Lease, config: int, reopened: bool) -> bool:
    """Whether an item whose latest lease is over may have another one."""
    if lease.state == "completed":
        # Completed here, and only the source's own record can make it new: not a dependency that moved.
        return reopened or lease.item_digest != item.digest
    if lease.item_revision != item.revision:
        return True
    return lease.state == "stopped" and lease.reason in PASSING_STOPS


def _issue(item: Assessment) -> Verdict:
    if item.outcome == "eligible":
        return Verdict(issue="pending")
    if item.outcome == "wait":
        return Verdict(issue="waiting", issue_reason=item.code)
    if item.outcome == "stop":
        return Verdict(issue="stopped", issue_reason=item.code)
    return NOTHING
