"""Errors of the wire itself: the request could not be read, or the connection cannot go on."""

from typing import Final

# code -> what it means; with the refusals of coordd/domain/errors.py these are all codes of docs/protocol.md
WIRE_ERRORS: Final[dict[str, str]] = {
    "bad_json": "the line is not JSON",
    "bad_utf8": "the line is not UTF-8",
    "not_an_object": "the line is JSON, but no object",
    "unknown_op": "there is no such op",
    "bad_request": "a field is missing, unknown, of the wrong type or out of range",
    "bad_body": "the document behind the line is not what the op takes",
    "unexpected_body": "the op takes no document",
    "line_too_long": "the line is longer than 16384 bytes; the connection ends",
    "body_too_large": "the document is larger than 1 MiB; the connection ends",
    "wrong_user": "the daemon belongs to another user; the connection ends",
    "peer_unknown": "the kernel does not say who is asking; the connection ends",
    "too_many_connections": "the daemon serves as many connections as it may; the connection ends",
    "too_slow": "a request was begun and not finished in time; the connection ends",
    "idle": "nothing was asked for long; the connection ends",
    "slow_reader": "answers were not read; the connection ends",
    "internal": "a bug in the daemon; its log has the traceback",
}
WIRE_RETRYABLE: Final[frozenset[str]] = frozenset({"too_many_connections", "too_slow", "idle", "slow_reader"})


class Malformed(Exception):
    """A request that could not be read. `fatal` when the framing is lost with it."""

    def __init__(
        self, code: str, message: str, *, id: int | str | None = None, fatal: bool = False, **detail: str | int
    ) -> None:
        super().__init__(message)
        self.code = code
        self.id = id
        self.fatal = fatal
        self.detail = detail
