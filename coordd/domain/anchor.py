"""The anchor of a lease: what must live for the lease to live.

An anchor is always named by the worker, never guessed from a short-lived client. Stored as one line of text,
`process PID START BOOT` or `connection PID START BOOT`.
"""

from typing import Literal, Self

import msgspec


class Anchor(msgspec.Struct, frozen=True):
    """A process of this user, or an open connection together with the process behind it.

    `start` is when the process began, in the kernel's own unit, and `boot` names the boot it began in: a process
    number alone says nothing once it may have been reused.
    """

    kind: Literal["process", "connection"]
    pid: int
    start: int
    boot: str

    def __str__(self) -> str:
        return f"{self.kind} {self.pid} {self.start} {self.boot}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote. Raises ValueError for anything else."""
        kind, pid, start, boot = text.split(" ")
        if kind not in ("process", "connection"):
            raise ValueError(f"not an anchor: {kind}")
        return cls(kind, int(pid), int(start), boot)  # type: ignore[arg-type]  # narrowed by the line above
