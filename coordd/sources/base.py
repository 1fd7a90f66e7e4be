"""What a work source is, and how it says that it cannot be read."""

from typing import Final, Protocol

from coordd.domain.errors import SourceFailed
from coordd.domain.work import Snapshot

# Every `cause` of a SourceFailed, and the sentence about {file} that goes with it. docs/sources.md lists them.
CAUSES: Final = {
    "missing": "{file} does not exist; create it, or correct `path`",
    "directory_missing": "{file} does not exist; create the directory, or correct `path`",
    "not_a_directory": "{file} is not a directory; set `path` to the directory that holds the plans",
    "is_directory": "{file} is a directory where a file is expected; rename or remove it",
    "not_a_file": "{file} is a pipe, a socket or a device; put a regular file there",
    "symlink_loop": "{file} is a symbolic link that leads back to itself; replace it by the file",
    "dangling_link": "{file} is a symbolic link to a file that does not exist; repair or remove it",
    "unreadable": "{file} cannot be read; check its permissions and the disk",
    "file_too_large": "{file} is larger than allowed; make it smaller, or raise `max_bytes`",
    "too_many_files": "{file} holds too many plans; move those that are done elsewhere",
    "not_utf8": "{file} is not UTF-8 text; save it as UTF-8",
    "file_broken": "{file} is not valid TOML; correct it",
    "torn": "{file} ends in the middle of a line; it is read again until it is whole",
    "changing": "{file} changes while it is read; it is read again once it is quiet",
    "too_many_problems": "{file} has too many items that cannot be read; see docs/sources.md for its format",
}


class WorkSource(Protocol):
    """Where work is read, and never written.

    One task at a time has snapshots taken, on a worker thread, and one waits in `changed`; they may be two. Watching
    begins when the source is opened, so an edit made after the files were read always makes `changed` return.
    """

    @property
    def name(self) -> str: ...

    def snapshot(self) -> Snapshot:
        """Everything the source holds now. Blocks; run it on a worker thread.

        Raises: SourceFailed: it cannot be read as a whole; `detail["cause"]` is one of CAUSES.
        """
        ...

    async def changed(self) -> None:
        """Return when the source may have changed since `changed` last returned, or since it was opened.

        It may return though nothing changed. Where the source is not watched it never returns.
        """
        ...

    def close(self) -> None:
        """Give back what watching holds. Twice is once; a task that waits in `changed` gets ClosedResourceError."""
        ...


def failure(source: str, cause: str, file: str, **detail: str | int) -> SourceFailed:
    """The typed failure of `source` because of `file`. `detail` holds codes and numbers, never content."""
    named = shown(file)
    return SourceFailed(
        f"source {source}: {CAUSES[cause].format(file=named)}", cause=cause, source=source, file=named, **detail
    )


def shown(name: str) -> str:
    """A file's name fit to be shown and logged: whatever does not print is escaped, and 200 characters are enough."""
    return (name if name.isprintable() else ascii(name)[1:-1])[-200:]
