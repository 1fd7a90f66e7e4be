"""Everyone who follows the receipts as they are committed."""

from collections.abc import Callable

from coordd.domain.receipt import Receipt

Listener = Callable[[list[Receipt]], None]


class Stream:
    """Hands every group of committed receipts, in order, to each listener. Listeners do not block."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def add(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def remove(self, listener: Listener) -> None:
        self._listeners.remove(listener)

    @property
    def followed(self) -> bool:
        return bool(self._listeners)

    def publish(self, receipts: list[Receipt]) -> None:
        for listener in list(self._listeners):
            listener(receipts)
