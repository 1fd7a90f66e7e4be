"""Instants as people and other programs read them: RFC 3339 in UTC, to the millisecond."""

from time import gmtime, strftime

_cached: tuple[int, str] = (-1, "")


def rfc3339(ms: int) -> str:
    """`ms` since 1970 in UTC as `2026-11-30T12:00:00.000Z`."""
    global _cached
    second, rest = divmod(ms, 1000)
    cached_second, prefix = _cached
    if second != cached_second:  # most instants of one moment share it, and formatting one costs more than the rest
        prefix = strftime("%Y-%m-%dT%H:%M:%S", gmtime(second))
        _cached = (second, prefix)
    return f"{prefix}.{rest:03d}Z"
