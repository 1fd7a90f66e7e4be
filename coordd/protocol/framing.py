"""Bytes in, requests or errors out: pure, and the same whatever the chunking. Source: docs/protocol.md#framing"""

from typing import Any, Final

import msgspec

from coordd.protocol.errors import Malformed
from coordd.protocol.requests import OPS, AnyRequest, Checkpoint, CheckpointDocument, Ping, Status, Stop

LINE_LIMIT: Final = 16_384  # bytes before the newline
BODY_LIMIT: Final = 2**20

_decode: Final = msgspec.json.Decoder(AnyRequest).decode
_decode_document: Final = msgspec.json.Decoder(CheckpointDocument).decode
_decode_any: Final = msgspec.json.Decoder().decode

_MAY_NAME_BODY: Final = (Checkpoint, Ping, Status, Stop)

Parsed = Any  # one of AnyRequest, or Malformed; a union this wide costs the type checker more than it finds


class RequestParser:
    """Cuts one connection's bytes into requests, in order.

    After a fatal error it takes nothing more: `broken` says so, and the connection must end.
    """

    __slots__ = ("_body", "_buffer", "_request", "broken", "partial")

    def __init__(self) -> None:
        self._buffer = b""
        self._request: Checkpoint | Malformed | None = None  # waits for its document
        self._body = 0
        self.broken = False
        self.partial = False  # a request has been begun and not finished

    def feed(self, data: bytes) -> list[Parsed]:
        """Take what was received, and return what is complete by now."""
        if not self.partial and data.find(b"\n") == len(data) - 1 <= LINE_LIMIT:
            parsed_line = self._line(data)  # the usual case: one whole line
            self.partial = parsed_line is None
            return [] if parsed_line is None else [parsed_line]
        self._buffer += data
        parsed: list[Parsed] = []
        while not self.broken:
            item = self._next()
            if item is None:
                break
            parsed.append(item)
        self.partial = bool(self._buffer) or self._request is not None
        return parsed

    def _next(self) -> Parsed | None:
        while True:
            if self._request is not None:
                if len(self._buffer) < self._body:
                    return None
                return self._with_body()
            end = self._buffer.find(b"\n")
            if end > LINE_LIMIT or (end < 0 and len(self._buffer) > LINE_LIMIT):
                self.broken = True
                self._buffer = b""
                return Malformed(
                    "line_too_long", f"a request line has at most {LINE_LIMIT} bytes", fatal=True, limit=LINE_LIMIT
                )
            if end < 0:
                return None
            line, self._buffer = self._buffer[:end], self._buffer[end + 1 :]
            parsed = self._line(line)
            if parsed is not None:
                return parsed

    def _line(self, line: bytes) -> Parsed | None:
        """One request; None when its document has to come first."""
        try:
            request = _decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            malformed, body = diagnose(line, error)
            if malformed.fatal:
                self.broken = True
                self._buffer = b""
            if not body:
                return malformed
            self._request, self._body = malformed, body
            return None
        if isinstance(request, _MAY_NAME_BODY) and request.body is not None:
            self._body = request.body
            if isinstance(request, Checkpoint):
                self._request = request
            else:  # framing survives an op of another protocol version, too
                self._request = Malformed("unexpected_body", "this op takes no document", id=request.id)
            return None
        return request

    def _with_body(self) -> Parsed:
        request, body = self._request, self._buffer[: self._body]
        self._buffer = self._buffer[self._body :]
        self._request = None
        if not isinstance(request, Checkpoint):
            return request
        if request.checkpoint is not None:
            return Malformed("bad_request", "send the checkpoint in the line or as body, not both", id=request.id)
        try:
            return msgspec.structs.replace(request, checkpoint=_decode_document(body), body=None)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            return Malformed("bad_body", f"the document is not a checkpoint: {error}", id=request.id)


def diagnose(line: bytes, error: Exception) -> tuple[Malformed, int]:
    """Say what is wrong with a line that is no request, and how many bytes of document follow it.

    Slow and thorough: it runs only for requests that are refused.
    """
    try:
        line.decode()
    except UnicodeDecodeError as bad:
        return Malformed("bad_utf8", f"the line is not UTF-8 from byte {bad.start} on"), 0
    try:
        document = _decode_any(line)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as bad:
        return Malformed("bad_json", f"the line is not JSON: {bad}"), 0
    if not isinstance(document, dict):
        return Malformed("not_an_object", "a request is a JSON object with an `op`"), 0
    known = document.get("id")
    request_id = known if isinstance(known, str | int) and not isinstance(known, bool) else None
    op, body = document.get("op"), document.get("body", 0)
    if not isinstance(body, int) or isinstance(body, bool) or not 0 <= body <= BODY_LIMIT:
        return Malformed(
            "body_too_large",
            f"`body` is a number of bytes, at most {BODY_LIMIT}",
            id=request_id,
            fatal=True,
            limit=BODY_LIMIT,
        ), 0
    if not isinstance(op, str):
        return Malformed("bad_request", "a request names its `op`", id=request_id, field="op"), body
    if op not in OPS:
        return _unknown_op(op, request_id), body
    if "body" in document and op != "checkpoint":
        return Malformed("unexpected_body", f"`{op}` takes no document", id=request_id), body
    text = str(error)
    malformed = Malformed("bad_request", f"`{op}`: {text}", id=request_id)
    if "`$." in text:
        malformed.detail["field"] = text.rpartition("`$.")[2].rstrip("`")
    return malformed, body


def _unknown_op(op: str, request_id: int | str | None) -> Malformed:
    from difflib import get_close_matches  # rare, and not worth the memory of an idle daemon

    near = get_close_matches(op, OPS, 1)
    hint = f"; did you mean `{near[0]}`?" if near else f"; there are {', '.join(OPS)}"
    return Malformed("unknown_op", f"there is no op `{op[:64]}`{hint}", id=request_id)
