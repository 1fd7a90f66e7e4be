"""A trigger: one durable, unique reason to run a worker in a repository."""

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

_encode = msgspec.json.Encoder().encode


class Trigger(msgspec.Struct, frozen=True):
    source: str  # task, message or checkpoint
    source_id: str
    source_revision: str
    repo: str

    @property
    def trigger_id(self) -> str:
        """The same tuple, the same id, on every machine: 32 hex digits."""
        return fingerprint([self.source, self.source_id, self.source_revision, self.repo])


def fingerprint(parts: Sequence[object]) -> str:
    """32 hex digits over the JSON of `parts`: unambiguous, whatever the strings hold."""
    return hashlib.sha256(_encode(parts)).hexdigest()[:32]


def revision(
    source_name: str, digest: str, status: str, plan: tuple[str, str] | None, dependencies: Iterable[Sequence[str]]
) -> str:
    """What the source said about an item, its plan and its dependencies, as one value.

    A finished dependency changes the revision though the task itself did not change. The order of the
    dependencies does not count.

    Args:
        digest: over the item's own relevant content.
        status: its class (todo, wait, …), not the source's word: to mark one's own task as being worked on is no
            new reason to work on it.
        plan: id and status class of its plan.
        dependencies: (kind, target id, state of the target) each.
    """
    return fingerprint([source_name, digest, status, plan, sorted(map(list, dependencies))])
