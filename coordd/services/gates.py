"""What holds back every offer of a repository or a source: pauses, missing paths, failing sources."""

import msgspec


class Gate(msgspec.Struct, frozen=True):
    code: str  # stable, see docs/states.md#reasons
    subject: str  # the repository or the source


class Gates:
    """In memory; pauses are kept in the store too and loaded at start."""

    def __init__(self) -> None:
        self.draining = False
        self.paused = False
        self.paused_repos: set[str] = set()
        self.selected: frozenset[str] = frozenset()  # the configured repositories
        self.pathless: set[str] = set()  # configured, and their directory is missing
        self.stale_sources: set[str] = set()  # without a complete snapshot since start or since they failed

    def of_repo(self, repo: str) -> Gate | None:
        """Why nothing is offered in `repo` now, or None."""
        if self.draining:
            return Gate("draining", repo)
        if self.paused or repo in self.paused_repos:
            return Gate("paused", repo)
        if repo not in self.selected:
            return Gate("not_selected", repo)
        if repo in self.pathless:
            return Gate("path_missing", repo)
        return None

    def source_open(self, source: str) -> bool:
        return source not in self.stale_sources
