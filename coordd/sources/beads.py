"""Work from a beads export, `.beads/issues.jsonl`: one JSON object a line. The tables are in docs/sources.md.

The file is an export that other programs write and git merges: it can be torn, lag, hold conflict markers or hold an
id twice. A line that cannot be used is named and left out; what depends on it then waits for something missing. Its
dependencies are kept where they can be read, so that whoever waits for the children of an item waits for it too.
"""

import codecs
import os
import re
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import msgspec
import trio

from coordd.config.settings import Source
from coordd.domain.errors import SourceFailed
from coordd.domain.trigger import fingerprint
from coordd.domain.work import Edge, EdgeKind, Message, Problem, Snapshot, Status, Task
from coordd.sources.base import failure
from coordd.sources.fields import PROBLEMS_MAX, Instant, asks, fault, is_id, scanned, to_ms, token
from coordd.sources.reading import Reading, Stamp, read_file
from coordd.sources.watch import Place, Watch, open_watch

STATUSES: Final[dict[str, Status]] = {
    "open": "todo",
    "in_progress": "progress",
    "hooked": "progress",
    "closed": "done",
    "tombstone": "cancelled",  # older versions keep what was deleted
}  # every other one, built in or custom, waits
EDGES: Final[dict[str, EdgeKind]] = {
    "blocks": "finish",
    "parent-child": "parent",
    "conditional-blocks": "failure",
    "waits-for": "children",
}
INFORMATIONAL: Final = frozenset(
    {"related", "discovered-from", "replies-to", "relates-to", "duplicates", "supersedes", "authored-by", "assigned-to"}
    | {"approved-by", "attests", "tracks", "until", "caused-by", "validates", "delegated-from"}
)  # they hold nothing back
HUMAN_LABELS: Final = frozenset({"human", "needs-human", "human-only", "no-agent", "no-agents"})
PAUSES_S: Final = (0.05, 0.1, 0.2, 0.4)  # before looking again at a file that is being written

# Whole words: "unblocked" and "no errors" tell of no failure.
_FAILED = re.compile(
    r"\b(?:failed|rejected|wontfix|won['’]t fix|cancell?ed|abandoned|blocked|error|timeout|aborted)\b", re.IGNORECASE
)
_UTF16_OR_32 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)


class Dependency(msgspec.Struct):
    depends_on_id: str
    type: str | None = None
    metadata: Any = None


class Row(msgspec.Struct):
    """What is read of a line. A field without a type here is looked at, whatever it holds."""

    id: Any = None
    kind_of_row: Any = msgspec.field(default=None, name="_type")
    title: str | None = None
    description: str | None = None
    design: str | None = None
    acceptance_criteria: str | None = None
    status: str | None = None
    priority: Any = None
    issue_type: str | None = None
    labels: list[str] | None = None
    dependencies: list[Dependency] | None = None
    external_ref: Any = None
    close_reason: Any = None
    defer_until: Instant | None = None
    await_type: Any = None
    metadata: Any = None
    pinned: bool | None = None
    is_template: bool | None = None
    ephemeral: bool | None = None


_decode_row = msgspec.json.Decoder(Row).decode
_decode_any = msgspec.json.Decoder().decode


class BeadsSource:
    """One export.

    Args:
        pause: sleeps that many seconds; called on the thread that takes the snapshot.
    """

    def __init__(self, settings: Source, *, pause: Callable[[float], None] = time.sleep) -> None:
        self.name = settings.name
        self._settings = settings
        self._path = settings.path
        self._pause = pause
        self._believed: Stamp | None = None  # what the last complete snapshot was read from
        self._watch: Watch | None = open_watch(self._places()) if settings.watch else None

    def snapshot(self) -> Snapshot:
        """See WorkSource. A file in doubt is read again for 0.75 s."""
        for pause_s in (*PAUSES_S, None):
            try:
                reading = read_file(self._file(), source=self.name, max_bytes=self._settings.max_bytes)
                self._doubt(reading, last=pause_s is None)
                snapshot = Rows(self._settings).read(reading.data)
            except SourceFailed as error:
                # Missing is for an instant what some editors make of a file that they replace.
                again = ("torn", "changing") if self._believed is None else ("torn", "changing", "missing")
                if pause_s is None or error.detail["cause"] not in again:
                    raise
                self._pause(pause_s)
            else:
                self._believed = reading.stamp
                return snapshot
        raise AssertionError("the last look returns or raises")

    async def changed(self) -> None:
        if self._watch is None:
            await trio.sleep_forever()
        else:
            await self._watch.changed()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()

    def _doubt(self, reading: Reading, *, last: bool) -> None:
        """Refuse what is half written.

        Raises: SourceFailed: changing, torn, not_utf8.
        """
        data = reading.data
        if not reading.steady:
            raise failure(self.name, "changing", self._file())
        if data.startswith(_UTF16_OR_32) or b"\0" in data[:4]:
            raise failure(self.name, "not_utf8", self._file())
        if not data and not last and reading.stamp != self._believed:
            # A shell empties the file before the program that fills it has begun.
            raise failure(self.name, "torn", self._file())
        rest = data[data.rfind(b"\n") + 1 :]
        if rest.strip():
            try:
                _decode_any(rest.removeprefix(codecs.BOM_UTF8))
            except (msgspec.DecodeError, RecursionError):
                raise failure(self.name, "torn", self._file()) from None

    def _file(self) -> str:
        """Where the export is now; where it is expected if there is none."""
        if not os.path.isdir(self._path):
            return self._path
        inside = os.path.join(self._path, ".beads", "issues.jsonl")
        beside = os.path.join(self._path, "issues.jsonl")
        return beside if os.path.exists(beside) and not os.path.exists(inside) else inside

    def _places(self) -> tuple[Place, ...]:
        name = os.path.basename(self._path)
        if os.path.isfile(self._path) or (name.endswith(".jsonl") and not os.path.isdir(self._path)):
            return (Place(os.path.dirname(self._path), lambda entry: entry == name),)
        return (
            Place(self._path, lambda entry: entry in (".beads", "issues.jsonl")),
            Place(os.path.join(self._path, ".beads"), lambda entry: entry == "issues.jsonl"),
        )


class Rows:
    """The rows of one file, on their way to a snapshot."""

    def __init__(self, settings: Source) -> None:
        self._settings = settings
        self._types = frozenset(settings.types)
        self._tasks: list[Task] = []
        self._messages: list[Message] = []
        self._edges: dict[Edge, None] = {}
        self._problems: list[Problem] = []
        self._seen: Counter[str] = Counter()

    def read(self, data: bytes) -> Snapshot:
        """Raises: SourceFailed: too_many_problems."""
        start = len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
        number = 0
        while start < len(data):
            end = data.find(b"\n", start)
            end = len(data) if end < 0 else end
            number += 1
            line = data[start:end]
            if line and not line.isspace():
                code = self._line(line)
                if code is not None:
                    self._problem(code if isinstance(code, Problem) else Problem(f"line {number}", code))
            start = end + 1
        twice = {id for id, times in self._seen.items() if times > 1}
        for id in twice:
            self._problem(Problem(id, "duplicate_id"))
        return Snapshot(
            tasks=tuple(task for task in self._tasks if task.id not in twice),
            edges=tuple(self._edges),
            messages=tuple(message for message in self._messages if message.id not in twice),
            problems=tuple(self._problems),
        )

    def _problem(self, problem: Problem) -> None:
        self._problems.append(problem)
        if len(self._problems) > PROBLEMS_MAX:
            raise failure(self._settings.name, "too_many_problems", self._settings.path)

    def _line(self, line: bytes) -> Problem | str | None:
        """Take in one line; what is wrong with it, or None."""
        try:
            row = _decode_row(line)
        except msgspec.ValidationError:
            return self._misfit(line)
        except (msgspec.DecodeError, RecursionError):
            return "bad_line"
        if row.kind_of_row not in (None, "issue"):
            return None
        if not is_id(row.id):
            return "bad_line"
        self._seen[row.id] += 1
        if token(row.issue_type) == "message":
            return self._message(row)
        whole = self._connect(row.id, row.dependencies or [])
        return self._task(row) if whole else Problem(row.id, "bad_dependencies")

    def _misfit(self, line: bytes) -> Problem | str | None:
        """A line of JSON that has a field of the wrong type."""
        try:
            item = _decode_any(line)
        except (msgspec.DecodeError, RecursionError):
            return "bad_line"
        if not isinstance(item, dict):
            return "bad_line"
        if item.get("_type") not in (None, "issue"):
            return None
        if not is_id(item.get("id")):
            return "bad_line"
        self._seen[item["id"]] += 1
        code = fault(item, Row)
        if code != "bad_dependencies":
            try:
                self._connect(item["id"], msgspec.convert(item.get("dependencies") or [], list[Dependency]))
            except msgspec.ValidationError:
                code = "bad_dependencies"
        return Problem(item["id"], code)

    def _connect(self, id: str, dependencies: list[Dependency]) -> bool:
        """Keep the dependencies of an item that count; False when one of them names nothing that could be an id."""
        whole = True
        for dependency in dependencies:
            type = (dependency.type or "").strip().lower()
            if type in INFORMATIONAL:
                continue
            if not is_id(dependency.depends_on_id):
                whole = False
                continue
            kind = EDGES.get(type, "unknown")
            if kind == "children" and _object(dependency.metadata).get("gate") == "any-children":
                kind = "any_child"
            self._edges[Edge(id, dependency.depends_on_id, kind, token(type))] = None
        return whole

    def _message(self, row: Row) -> Problem | None:
        status, _ = _status(row)
        # What is addressed to a human wakes no worker.
        asked = status == "todo" and not _needs_human(row) and asks(row.title or "")
        text = scanned(row.title, row.description) if asked else ()
        if text is None:
            return Problem(row.id, "text_too_long")
        self._messages.append(
            Message(id=row.id, asks=asked, digest=fingerprint([row.title, row.description]), text=text)
        )
        return None

    def _task(self, row: Row) -> Problem | None:
        if row.status is None:
            return Problem(row.id, "bad_status")
        metadata = _object(row.metadata)
        if not metadata and isinstance(row.metadata, str) and not _is_plain(row.metadata):
            return Problem(row.id, "bad_metadata")
        status, raw_status = _status(row)
        over = status in ("done", "cancelled")
        text = () if over else scanned(row.title, row.description, row.design, row.acceptance_criteria)
        if text is None:
            return Problem(row.id, "text_too_long")
        kind = row.issue_type or "task"
        self._tasks.append(
            Task(
                id=row.id,
                status=status,
                raw_status=raw_status,
                digest=_digest(row, kind),
                kind=token(kind),
                is_work=kind in self._types,
                taken=status == "progress" and not self._settings.resume_in_progress,
                failed=status == "done" and _tells_failure(row.close_reason),
                priority=_priority(row.priority),
                not_before_ms=None if row.defer_until is None else to_ms(row.defer_until),
                needs_human=_needs_human(row),
                intervention=_says(metadata.get("intervention_note")),
                blocked_reason=_says(metadata.get("blocking_reason")) or _says(metadata.get("blocked_reason")),
                text=text,
            )
        )
        return None


def _digest(row: Row, kind: str) -> str:
    """Over what makes it this piece of work: to note progress, to assign or to reprioritise it is no new work."""
    dependencies = sorted((d.type or "", d.depends_on_id) for d in row.dependencies or ())
    content = [row.title, row.description, row.design, row.acceptance_criteria, kind, row.external_ref]
    return fingerprint([*content, sorted(row.labels or ()), dependencies])


def _status(row: Row) -> tuple[Status, str]:
    """The status class and the word for it. A marker holds an item that is not over, whatever its status says."""
    raw = token(row.status)
    status = STATUSES.get(raw, "wait")
    if status not in ("done", "cancelled"):
        marks = (("pinned", row.pinned), ("template", row.is_template), ("ephemeral", row.ephemeral))
        for mark, is_set in marks:
            if is_set:
                return "wait", mark
    return status, raw


def _tells_failure(reason: object) -> bool:
    return isinstance(reason, str) and _FAILED.search(reason) is not None


def _priority(value: object) -> int:
    """0 to 4. It only orders, so what is not in the range holds nothing back."""
    return min(max(value, 0), 4) if isinstance(value, int) and not isinstance(value, bool) else 2


def _needs_human(row: Row) -> bool:
    labels = {label.strip().lower().replace("_", "-") for label in row.labels or ()}
    return bool(
        labels & HUMAN_LABELS
        or (isinstance(row.await_type, str) and row.await_type.strip().lower() == "human")
        or _is_set(_object(row.metadata).get("needs_human"))
    )


def _is_set(flag: object) -> bool:
    return flag.strip().lower() not in ("", "false", "no", "0") if isinstance(flag, str) else bool(flag)


def _says(value: object) -> bool:
    """Whether a field that stops work holds anything."""
    return bool(value.strip() if isinstance(value, str) else value)


def _is_plain(text: str) -> bool:
    """Whether metadata in a string is free text, or an object that says nothing. A broken object said something, and
    that it did not stop the item cannot be known.
    """
    return not text.lstrip().startswith("{") or not text.strip().strip("{}").strip()


def _object(value: object) -> dict[str, Any]:
    """A field that holds an object, or an object as a JSON string, or who knows what: then the empty object."""
    if isinstance(value, str):
        try:
            value = _decode_any(value)
        except (msgspec.DecodeError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}
