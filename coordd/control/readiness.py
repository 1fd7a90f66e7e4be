"""The inner set of descriptors that one task waits for: epoll, or kqueue where there is no epoll.

Waiting for one descriptor that stands for all costs a fifth of a task per connection. Source:
docs/architecture.md#one-task-for-all-connections
"""

import select
import sys

READ = 1
WRITE = 2

if sys.platform == "linux":

    class Readiness:
        """Level-triggered. `poll` blocks for as long as it is told; `fileno` is what the task waits for."""

        def __init__(self) -> None:
            self._epoll = select.epoll(flags=select.EPOLL_CLOEXEC)
            self.fileno = self._epoll.fileno
            self.close = self._epoll.close

        def add(self, fd: int) -> None:
            self._epoll.register(fd, select.EPOLLIN)

        def want(self, fd: int, *, read: bool, write: bool) -> None:
            self._epoll.modify(fd, (select.EPOLLIN if read else 0) | (select.EPOLLOUT if write else 0))

        def remove(self, fd: int) -> None:
            self._epoll.unregister(fd)

        def poll(self, timeout_s: float = 0) -> list[tuple[int, int]]:
            """(descriptor, event mask) pairs; a mask without EPOLLOUT means: read, or learn that it is closed."""
            return self._epoll.poll(timeout_s)

        writable = staticmethod(lambda mask: bool(mask & select.EPOLLOUT))
        readable = staticmethod(lambda mask: bool(mask & ~select.EPOLLOUT))

else:

    class Readiness:
        """The same over kqueue. Not run by the project's own tests."""

        def __init__(self) -> None:
            self._kqueue = select.kqueue()
            self.fileno = self._kqueue.fileno
            self.close = self._kqueue.close

        def add(self, fd: int) -> None:
            self._kqueue.control([select.kevent(fd, select.KQ_FILTER_READ, select.KQ_EV_ADD)], 0)

        def want(self, fd: int, *, read: bool, write: bool) -> None:
            for wanted, filter in ((read, select.KQ_FILTER_READ), (write, select.KQ_FILTER_WRITE)):
                action = select.KQ_EV_ADD if wanted else select.KQ_EV_DELETE
                try:
                    self._kqueue.control([select.kevent(fd, filter, action)], 0)
                except FileNotFoundError:
                    if wanted:
                        raise

        def remove(self, fd: int) -> None:
            self.want(fd, read=False, write=False)

        def poll(self, timeout_s: float = 0) -> list[tuple[int, int]]:
            events = self._kqueue.control(None, 256, timeout_s)
            return [(event.ident, WRITE if event.filter == select.KQ_FILTER_WRITE else READ) for event in events]

        writable = staticmethod(lambda mask: mask == WRITE)
        readable = staticmethod(lambda mask: mask == READ)
