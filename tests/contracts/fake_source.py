"""A source that lives in memory, for tests of what uses sources. It passes the suite that the real ones pass."""

import trio

from coordd.domain.errors import SourceFailed
from coordd.domain.work import Snapshot


class FakeSource:
    """Holds what it was given last.

    Attributes:
        looks: how many snapshots were asked for, the failed ones included.
    """

    def __init__(self, name: str = "fake", snapshot: Snapshot | None = None, *, watched: bool = True) -> None:
        self.name = name
        self.looks = 0
        self._watched = watched
        self._holds: Snapshot | SourceFailed = snapshot if snapshot is not None else Snapshot()
        self._change = trio.Event()
        self._is_closed = False

    def hold(self, holds: Snapshot | SourceFailed) -> None:
        """What it shows, or how it fails, from now on."""
        self._holds = holds
        self._change.set()

    def snapshot(self) -> Snapshot:
        self.looks += 1
        if isinstance(self._holds, SourceFailed):
            raise self._holds
        return self._holds

    async def changed(self) -> None:
        if not self._watched:
            await trio.sleep_forever()
        if not self._is_closed:
            await self._change.wait()
        if self._is_closed:
            raise trio.ClosedResourceError
        self._change = trio.Event()

    def close(self) -> None:
        self._is_closed = True
        self._change.set()
