"""The ops, one file per noun. `KINDS` says for each request what kind of call it makes, and what answers it.

WriteCall: a unit of the store's next group, `handler(services, tx, request, connection)`.
ReadCall: at once when its turn comes, `handler(services, request, connection)`.
TaskCall: a task of its own, `await handler(services, request, connection)`.
"""

from collections.abc import Callable
from typing import Any, Final

from coordd.control.connection import WriteCall
from coordd.control.ops import daemon, lease, look, operator, stream, work

KINDS: Final[dict[type, tuple[type[WriteCall], Callable[..., Any]]]] = {
    kind: (call, handler)
    for module in (daemon, lease, look, operator, stream, work)
    for call, handlers in module.HANDLERS.items()
    for kind, handler in handlers.items()
}
