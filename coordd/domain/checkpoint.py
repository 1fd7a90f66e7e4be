"""A checkpoint: what a worker leaves for the one that continues. It stays on this machine."""

from typing import Final

import msgspec

from coordd.domain.errors import CheckpointTooLarge
from coordd.domain.trigger import fingerprint

LIMIT_BYTES: Final = 8 * 1024


class Checkpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    summary: str = ""
    files_changed: tuple[str, ...] = ()
    next_action: str = ""
    blocked_reason: str = ""

    @property
    def blocked(self) -> bool:
        """Any blocked reason ends automatic continuation, one of blanks too."""
        return self.blocked_reason != ""

    def encoded(self) -> bytes:
        """The checkpoint as the JSON that is stored. Raises CheckpointTooLarge above 8 KiB."""
        text = msgspec.json.encode(self)
        if len(text) > LIMIT_BYTES:
            raise CheckpointTooLarge(
                f"the checkpoint has {len(text)} bytes, {LIMIT_BYTES} are allowed; shorten it and name files instead",
                size=len(text),
                limit=LIMIT_BYTES,
            )
        return text


def checkpoint_revision(lease_id: str, encoded: bytes) -> str:
    """The revision of the trigger that a checkpoint makes: unique to the lease and to what it left."""
    return fingerprint(["checkpoint", lease_id, encoded.decode()])
