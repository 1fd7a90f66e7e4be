"""`subscribe`: every transition, as it is committed."""

from functools import partial
from typing import Any, Final

import trio

from coordd.control.connection import Connection, TaskCall, WriteCall
from coordd.control.ops.context import Services
from coordd.control.ops.views import receipt_view
from coordd.domain.receipt import Receipt
from coordd.protocol.replies import ReceiptEvent, SubscribeReply, encode, encode_event
from coordd.protocol.requests import Subscribe

PAGE: Final = 500


async def subscribe(services: Services, request: Subscribe, connection: Connection) -> None:
    """`subscribe`: what was committed after a receipt, then what is committed from now on, until the client leaves.

    It is the connection's last request. A client that does not read is dropped, and may come back with the last
    sequence number it has seen.
    """
    behind: list[Receipt] = []  # what is committed while the past is being sent
    caught_up = False

    def listen(receipts: list[Receipt]) -> None:
        if caught_up:
            send(receipts)
        else:
            behind.extend(receipts)

    def send(receipts: list[Receipt]) -> None:
        if receipts:
            connection.push(b"".join(encode_event(ReceiptEvent(receipt_view(receipt))) for receipt in receipts))

    services.stream.add(listen)
    connection.streaming = True
    try:
        last: int = services.read(services.looking.last_seq)
        sent = last if request.after is None else min(request.after, last)
        connection.push(encode(SubscribeReply(sent), request.id))
        while sent < last:
            page = services.read(partial(_page, services, sent))
            send(page)
            sent = page[-1].seq
            await connection.drained()
        caught_up = True
        send([receipt for receipt in behind if receipt.seq > sent])
        behind.clear()
        await trio.sleep_forever()
    finally:
        connection.streaming = False
        services.stream.remove(listen)


def _page(services: Services, after: int, reader: Any) -> list[Receipt]:
    return services.looking.history(reader, lease_id=None, repo=None, after=after, limit=PAGE)


HANDLERS: Final[dict[type[WriteCall], dict[type, Any]]] = {TaskCall: {Subscribe: subscribe}}
