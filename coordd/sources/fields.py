"""What every kind of source does with the fields of an item: ids, tokens, text, and naming what is wrong."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, TypeGuard

import msgspec

ID_CHARS: Final = 200
TEXT_CHARS: Final = 128 * 1024  # of one item in all; see `scanned`
PROBLEMS_MAX: Final = 1000  # of one source; more, and it is not the file it is taken for

Instant = Annotated[datetime, msgspec.Meta(tz=True)]  # RFC 3339 with an offset: one without it names no instant

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TOKEN: Final = re.compile(r"[a-z0-9_-]{1,40}\Z")


def is_id(value: object) -> TypeGuard[str]:
    """At most 200 characters that print, no blanks: what may be shown, logged and put into an environment."""
    return isinstance(value, str) and 0 < len(value) <= ID_CHARS and value.isprintable() and " " not in value


def token(value: object) -> str:
    """A word of the source (a status, a type) as it may be shown; `other` where it is not a short plain one."""
    word = value.strip().lower() if isinstance(value, str) else ""
    return word if _TOKEN.match(word) else "other"


def asks(subject: str) -> bool:
    """Whether a message with this subject asks for an inspection."""
    return subject.strip().casefold().startswith("[action]")


def scanned(*parts: str | None) -> tuple[str, ...] | None:
    """The text that the safety rules look at, or None when it is too long to be looked at whole.

    Text cut short would hide what stands behind the cut, so an item with more than 128 Ki characters is refused.
    """
    text = tuple(part for part in parts if part)
    return text if sum(map(len, text)) <= TEXT_CHARS else None


def to_ms(instant: datetime) -> int:
    """Milliseconds since 1970, for every instant a datetime can hold."""
    return (instant - _EPOCH) // timedelta(milliseconds=1)


def fault(item: Mapping[str, object], shape: type[msgspec.Struct]) -> str:
    """The code for what is wrong with an item that does not have this shape: `bad_FIELD`, else `unknown_key`."""
    for field in msgspec.structs.fields(shape):
        if field.encode_name in item:
            try:
                msgspec.convert(item[field.encode_name], field.type)
            except msgspec.ValidationError:
                return f"bad_{field.encode_name}"
        elif field.required:
            return f"bad_{field.encode_name}"
    return "unknown_key"
