"""What the ops may use. One struct, filled by app.py."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from coordd.domain.clock import Clock
    from coordd.services.board import Board
    from coordd.services.explaining import Explaining
    from coordd.services.gates import Gates
    from coordd.services.keeper import Keeper
    from coordd.services.leasing import Leasing
    from coordd.services.looking import Looking
    from coordd.services.offering import Offering
    from coordd.services.operating import Operating
    from coordd.services.stream import Stream


class About(msgspec.Struct, frozen=True):
    """Who this daemon is."""

    version: str
    instance: str  # another one at every start
    pid: int
    started_at_ms: int
    socket: str
    state_dir: str
    executable_deleted: Callable[[], bool]


class Services(msgspec.Struct, kw_only=True):
    clock: "Clock"
    leasing: "Leasing"
    offering: "Offering"
    board: "Board"
    gates: "Gates"
    keeper: "Keeper"
    stream: "Stream"
    looking: "Looking"
    explaining: "Explaining"
    operating: "Operating"
    renewal_ms: int  # what workers are told; replaced on reload
    identify: Callable[[int], Any]  # a process number to an Anchor
    write: Callable[[Callable[[Any], Any]], Awaitable[Any]]
    read: Callable[[Callable[[Any], Any]], Any]
    verify: Callable[[], Awaitable[Any]]
    backup: Callable[[str], Awaitable[int]]
    about: About
