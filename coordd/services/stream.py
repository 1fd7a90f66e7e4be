"""Everyone who follows the receipts as they are committed."""

from collections.abc import Callable

from coordd.domain.receipt import Receipt, Values

Listener = Callable[[list[Receipt]], None]


class Stream:
    """Hands every group of committed receipts, in order, to each listener. Listeners do not block."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def add(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def remove(self, listener: Listener) -> None:
        self._listeners.remove(listener)

    def publish(self, receipts: list[Values]) -> None:
        """Called with what a group has committed; costs nothing while nobody follows."""
        if self._listeners:
            committed = [Receipt(*values) for values in receipts]
            for listener in list(self._listeners):
                listener(committed)
