"""Instants as people and other programs read them: RFC 3339 in UTC, to the millisecond."""

from time import gmtime, strftime

_second: tuple[int, str] = (-1, "")
_instant: tuple[int, str] = (-1, "")


def rfc3339(ms: int) -> str:
    """`ms` since 1970 in UTC as `2026-11-30T12:00:00.000Z`."""
    global _second, _instant
    # The answers of one group share an instant, and those of one moment a second: formatting costs more than asking.
    if _instant[0] == ms:
        return _instant[1]
    second, rest = divmod(ms, 1000)
    if _second[0] != second:
        _second = (second, strftime("%Y-%m-%dT%H:%M:%S", gmtime(second)))
    text = f"{_second[1]}.{rest:03d}Z"
    _instant = (ms, text)
    return text
