"""Every key of the configuration, one struct per room, with its default and range. Source: docs/config.md

Names that end in `_s` are seconds, in `_bytes` bytes. What is not here is refused by the loader.
"""

import hashlib
import os
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta, Struct, field

Seconds = Annotated[float, Meta(gt=0, le=86_400)]
# A name that is shown, logged and put into a worker's environment: no blanks, no control characters.
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@:/+#-]{0,127}\Z")]

ActionClass = Literal["inspect", "edit", "check", "update_state", "wake"]
ACTION_CLASSES: tuple[ActionClass, ...] = get_args(ActionClass)


class Daemon(Struct, frozen=True, forbid_unknown_fields=True):
    """How the daemon runs."""

    poll_s: Seconds = 15.0  # between two looks at a source that is not watched
    drain_s: Annotated[float, Meta(ge=0, le=600)] = 10.0  # for requests in flight when it stops
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    log_bytes: Annotated[int, Meta(ge=10_000, le=2**30)] = 2_000_000  # a log file's size; one older file is kept


class Control(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of the control socket."""

    max_connections: Annotated[int, Meta(ge=1, le=65_536)] = 4096
    idle_s: Seconds = 600.0  # a connection that asks nothing, waits for nothing and anchors nothing
    request_s: Seconds = 10.0  # from the first byte of a request to its last
    output_bytes: Annotated[int, Meta(ge=65_536, le=2**28)] = 1_048_576  # unread answers of one connection


class LeaseSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The life of a lease."""

    ttl_s: Annotated[float, Meta(ge=1, le=86_400)] = 30.0
    renewal_s: Annotated[float, Meta(ge=0.1, le=86_400)] = 10.0  # what workers are told; less than ttl_s
    attempts: Annotated[int, Meta(ge=0, le=9)] = 4  # offers of one lease; 0 issues none
    delays_s: Annotated[tuple[Annotated[float, Meta(ge=0, le=86_400)], ...], Meta(min_length=1, max_length=9)] = (
        5.0,
        15.0,
        60.0,
        300.0,
    )  # before the 2nd, 3rd, … offer; the last one repeats


class Policy(Struct, frozen=True, forbid_unknown_fields=True):
    """What coordd may have done in a repository. A configuration narrows the profile, never widens it."""

    profile: Literal["default"] = "default"
    allow: tuple[ActionClass, ...] = ACTION_CLASSES


class Exec(Struct, frozen=True, forbid_unknown_fields=True):
    """The `exec` transport of one repository."""

    argv: Annotated[tuple[str, ...], Meta(min_length=1)]  # no shell; argv[0] absolute or found on PATH
    env: tuple[Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\Z")], ...] = (
        "HOME",
        "LANG",
        "LOGNAME",
        "PATH",
        "SHELL",
        "TERM",
        "TMPDIR",
        "TZ",
        "USER",
        "XDG_RUNTIME_DIR",
    )  # variables handed through; COORD_* is added
    log_bytes: Annotated[int, Meta(ge=4096, le=2**30)] = 1_000_000  # output kept of one run
    stop_s: Annotated[float, Meta(ge=0, le=600)] = 10.0  # between SIGTERM and SIGKILL when its lease was ended


class Repo(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A repository that work may be dispatched to. Only named ones are."""

    name: Name
    path: str  # where it is checked out; `~` is the home directory, a relative path begins at the configuration file
    transport: Literal["pull", "exec"] = "pull"
    ttl_s: Annotated[float, Meta(ge=1, le=86_400)] | None = None  # instead of leases.ttl_s
    exec: Exec | None = None


class Source(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where work is read. coordd never writes to it."""

    name: Name
    kind: Literal["workplans", "beads"]
    path: str  # workplans: a directory; beads: the issues.jsonl, or the directory that holds .beads
    repo: Name | None = None  # of work that names none itself
    poll_s: Seconds | None = None  # instead of daemon.poll_s
    watch: bool = True  # see an edit within a second, not at the next poll
    max_bytes: Annotated[int, Meta(ge=1024, le=2**30)] = 64 * 1024 * 1024  # a larger file is refused
    types: tuple[str, ...] = ("task", "bug", "feature", "chore")  # beads: what a worker is woken for
    resume_in_progress: bool = False  # beads: also wake for what somebody has marked as in progress


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    daemon: Daemon = field(default_factory=Daemon)
    control: Control = field(default_factory=Control)
    leases: LeaseSettings = field(default_factory=LeaseSettings)
    policy: Policy = field(default_factory=Policy)
    repo: tuple[Repo, ...] = ()
    source: tuple[Source, ...] = ()

    def version_for(self, repo: Repo, source: Source) -> str:
        """Names what governs a lease of this source in this repository; a change of it stops what still waits.

        Limits of the socket and the log level govern no lease and are not part of it.
        """
        governs = msgspec.json.encode([self.leases, self.policy, repo, source])
        return hashlib.sha256(governs).hexdigest()[:16]


def expand(path: str, base: str) -> str:
    """The absolute form of a path in a configuration file that lies in directory `base`."""
    return os.path.normpath(os.path.join(base, os.path.expanduser(path)))
