"""What every kind of source does alike, and the fake with them."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol

import msgspec
import pytest
import trio
import trio.testing
from fake_source import FakeSource

from coordd.config.settings import Source
from coordd.domain.errors import SourceFailed
from coordd.domain.work import Problem, Snapshot, Task
from coordd.sources.base import CAUSES, WorkSource, failure
from coordd.sources.fields import is_id
from coordd.sources.kinds import open_source
from coordd.sources.watch import Inotify

WORDING: Final = "sesame-opens"  # stands in every text; must not get out of a snapshot


class Origin(Protocol):
    """Where a kind of source reads, as a test sees it: it holds tasks by short names."""

    def open(self, *, watch: bool = True) -> WorkSource: ...
    def id(self, name: str) -> str:
        """The id that a task has in the snapshot."""
        ...

    def write(self, *names: str, status: str = "todo", title: str = "t") -> None:
        """Hold these tasks, written where they stand."""
        ...

    def replace(self, *names: str) -> None:
        """Hold these tasks, put there in one step."""
        ...

    def remove(self) -> None:
        """Hold nothing that could be read as a whole, or nothing at all."""
        ...

    def spoil_one(self, good: str, bad: str) -> None:
        """Hold a good and a bad task."""
        ...

    def repeat(self, once: str, twice: str) -> None:
        """Hold one task once and another twice."""
        ...

    def spoil(self) -> None:
        """Hold what cannot be read as a whole."""
        ...


class WorkplansOrigin:
    def __init__(self, path: Path) -> None:
        self.path = path / "plans"
        self.path.mkdir()
        self.file = self.path / "p.toml"

    def open(self, *, watch: bool = True) -> WorkSource:
        return open_source(Source(name="origin", kind="workplans", path=str(self.path), watch=watch))

    def id(self, name: str) -> str:
        return f"p/{name}"

    def text(self, *names: str, status: str = "todo", title: str = "t", more: str = "") -> str:
        tasks = "".join(
            f'[[task]]\nid = "{name}"\ntitle = "{title}"\nbody = "{WORDING}"\nstatus = "{status}"\n' for name in names
        )
        return f'[workplan]\nstatus = "active"\n{tasks}{more}'

    def write(self, *names: str, status: str = "todo", title: str = "t") -> None:
        self.file.write_text(self.text(*names, status=status, title=title))

    def replace(self, *names: str) -> None:
        (self.path / "p.toml~").write_text(self.text(*names))
        os.replace(self.path / "p.toml~", self.file)

    def remove(self) -> None:
        self.file.unlink()

    def spoil_one(self, good: str, bad: str) -> None:
        self.file.write_text(self.text(good, more=f'[[task]]\nid = "{bad}"\n"{WORDING}" = 1\n'))

    def repeat(self, once: str, twice: str) -> None:
        self.file.write_text(self.text(twice, once, twice))

    def spoil(self) -> None:
        self.file.write_text(f"{WORDING} = = {WORDING}")


class BeadsOrigin:
    statuses: Final = {"todo": "open", "done": "closed"}

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / ".beads").mkdir()
        self.file = path / ".beads" / "issues.jsonl"

    def open(self, *, watch: bool = True) -> WorkSource:
        return open_source(Source(name="origin", kind="beads", path=str(self.path), watch=watch))

    def id(self, name: str) -> str:
        return name

    def text(self, *names: str, status: str = "todo", title: str = "t") -> str:
        rows = [
            {"id": name, "title": title, "description": WORDING, "status": self.statuses[status], "issue_type": "task"}
            for name in names
        ]
        return "".join(json.dumps(row) + "\n" for row in rows)

    def write(self, *names: str, status: str = "todo", title: str = "t") -> None:
        self.file.write_text(self.text(*names, status=status, title=title))

    def replace(self, *names: str) -> None:
        (self.file.parent / "issues.jsonl.tmp").write_text(self.text(*names))
        os.replace(self.file.parent / "issues.jsonl.tmp", self.file)

    def remove(self) -> None:
        self.file.unlink()

    def spoil_one(self, good: str, bad: str) -> None:
        self.file.write_text(json.dumps({"id": bad, "status": "open", "title": [WORDING]}) + "\n" + self.text(good))

    def repeat(self, once: str, twice: str) -> None:
        self.file.write_text(self.text(twice, once, twice))

    def spoil(self) -> None:
        self.file.write_bytes(self.text(WORDING).encode("utf-16"))


class FakeOrigin:
    """Does by hand what the others do by reading."""

    def __init__(self, path: Path) -> None:
        self.held: Snapshot | SourceFailed = Snapshot()
        self.opened: list[FakeSource] = []

    def open(self, *, watch: bool = True) -> WorkSource:
        source = FakeSource("origin", watched=watch)
        if self.held != Snapshot():
            source.hold(self.held)
            source._change = trio.Event()
        self.opened.append(source)
        return source

    def hold(self, held: Snapshot | SourceFailed) -> None:
        self.held = held
        for source in self.opened:
            source.hold(held)

    def tasks(self, *names: str, status: str = "todo", title: str = "t") -> tuple[Task, ...]:
        fields = {"raw_status": status, "digest": title, "text": (WORDING,) if status == "todo" else ()}
        return tuple(msgspec.convert({"id": name, "status": status, **fields}, Task) for name in names)

    def id(self, name: str) -> str:
        return name

    def write(self, *names: str, status: str = "todo", title: str = "t") -> None:
        self.hold(Snapshot(tasks=self.tasks(*names, status=status, title=title)))

    def replace(self, *names: str) -> None:
        self.write(*names)

    def remove(self) -> None:
        self.hold(Snapshot())

    def spoil_one(self, good: str, bad: str) -> None:
        self.hold(Snapshot(tasks=self.tasks(good), problems=(Problem(bad, "bad_title"),)))

    def repeat(self, once: str, twice: str) -> None:
        self.hold(Snapshot(tasks=self.tasks(once), problems=(Problem(twice, "duplicate_id"),)))

    def spoil(self) -> None:
        self.hold(failure("origin", "not_utf8", "somewhere"))


@pytest.fixture(params=["workplans", "beads", "workplans, looked at", "beads, looked at", "fake"])
def origin(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Origin:
    kinds: dict[str, Callable[[Path], Origin]] = {
        "workplans": WorkplansOrigin,
        "beads": BeadsOrigin,
        "fake": FakeOrigin,
    }
    kind, _, looked_at = request.param.partition(",")
    if looked_at:

        def refused(self: Inotify) -> None:
            raise OSError(errno.EMFILE, "used up")

        monkeypatch.setattr(Inotify, "__init__", refused)
    return kinds[kind](tmp_path)


@pytest.fixture
def source(origin: Origin) -> Iterator[WorkSource]:
    origin.write("a", "b")
    source = origin.open()
    yield source
    source.close()


def ids(source: WorkSource) -> set[str]:
    return {task.id for task in source.snapshot().tasks}


async def is_told(source: WorkSource, within_s: float = 60) -> bool:
    with trio.move_on_after(within_s):
        await source.changed()
        return True
    return False


def test_a_snapshot_holds_everything_under_ids_of_its_own(origin: Origin, source: WorkSource) -> None:
    snapshot = source.snapshot()

    assert source.name == "origin"
    assert [task.id for task in snapshot.tasks] == [origin.id("a"), origin.id("b")]
    assert all(is_id(task.id) for task in snapshot.tasks)
    assert [task.status for task in snapshot.tasks] == ["todo", "todo"]
    assert snapshot.problems == ()


def test_the_same_state_gives_the_same_snapshot(origin: Origin, source: WorkSource) -> None:
    first = source.snapshot()
    origin.write("a", "b")

    assert source.snapshot() == first


def test_the_digest_follows_the_content_and_not_the_status(origin: Origin, source: WorkSource) -> None:
    (before, _) = source.snapshot().tasks
    origin.write("a", "b", status="done")
    (done, _) = source.snapshot().tasks
    origin.write("a", "b", title="another")
    (renamed, _) = source.snapshot().tasks

    assert (done.status, done.digest) == ("done", before.digest)
    assert renamed.digest != before.digest


def test_text_is_carried_for_what_may_run_and_not_for_what_is_over(origin: Origin, source: WorkSource) -> None:
    assert WORDING in source.snapshot().tasks[0].text
    origin.write("a", status="done")
    assert source.snapshot().tasks[0].text == ()


def test_a_bad_item_is_named_by_its_id_and_the_others_stay(origin: Origin, source: WorkSource) -> None:
    origin.spoil_one("good", "bad")

    snapshot = source.snapshot()

    assert [task.id for task in snapshot.tasks] == [origin.id("good")]
    assert [problem.where for problem in snapshot.problems] == [origin.id("bad")]
    assert WORDING not in repr(snapshot.problems)


def test_an_id_that_is_there_twice_is_in_no_snapshot(origin: Origin, source: WorkSource) -> None:
    origin.repeat("once", "twice")

    snapshot = source.snapshot()

    assert [task.id for task in snapshot.tasks] == [origin.id("once")]
    assert snapshot.problems == (Problem(origin.id("twice"), "duplicate_id"),)


def test_a_source_that_cannot_be_read_fails_with_a_cause_and_is_read_again_when_it_can(
    origin: Origin, source: WorkSource
) -> None:
    origin.spoil()
    with pytest.raises(SourceFailed) as caught:
        source.snapshot()

    assert caught.value.detail["cause"] in CAUSES
    assert caught.value.detail["source"] == "origin"
    assert "origin" in str(caught.value)
    assert WORDING not in f"{caught.value!r}{caught.value.detail}{caught.value.__cause__!r}"

    origin.replace("c")
    assert ids(source) == {origin.id("c")}


async def test_an_edit_a_replacement_a_removal_and_a_new_file_are_told(
    origin: Origin, source: WorkSource, autojump_clock: trio.testing.MockClock
) -> None:
    source.snapshot()
    changes: list[Callable[[], None]] = [
        lambda: origin.write("a", "b", "c"),
        lambda: origin.replace("d"),
        origin.remove,
        lambda: origin.write("e"),
    ]
    for change in changes:
        change()
        assert await is_told(source)
        assert not await is_told(source)
    assert ids(source) == {origin.id("e")}


async def test_a_change_while_it_is_waited_for_is_told(
    origin: Origin, source: WorkSource, autojump_clock: trio.testing.MockClock
) -> None:
    told = []
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            told.append(await is_told(source))

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        origin.replace("c")

    assert told == [True]


async def test_no_change_between_a_snapshot_and_the_wait_is_lost(
    origin: Origin, source: WorkSource, autojump_clock: trio.testing.MockClock
) -> None:
    for number in range(20):
        before = ids(source)
        (origin.replace if number % 2 else origin.write)("t" * (number + 1))
        assert await is_told(source)
        assert ids(source) != before


async def test_a_change_after_a_wait_that_was_given_up_is_told(
    origin: Origin, source: WorkSource, autojump_clock: trio.testing.MockClock
) -> None:
    assert not await is_told(source)
    origin.write("c")

    assert await is_told(source)


async def test_a_failing_source_tells_when_it_may_be_well(
    origin: Origin, source: WorkSource, autojump_clock: trio.testing.MockClock
) -> None:
    origin.spoil()
    assert await is_told(source)
    with pytest.raises(SourceFailed):
        source.snapshot()
    assert not await is_told(source)
    origin.write("a")

    assert await is_told(source)
    assert ids(source) == {origin.id("a")}


async def test_a_source_that_is_not_watched_tells_nothing(
    origin: Origin, autojump_clock: trio.testing.MockClock
) -> None:
    source = origin.open(watch=False)
    origin.write("a")

    assert not await is_told(source, within_s=3600)
    assert ids(source) == {origin.id("a")}
    source.close()


async def test_closing_ends_the_wait_and_may_be_done_twice(
    origin: Origin, source: WorkSource, autojump_clock: trio.testing.MockClock
) -> None:
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                with pytest.raises(trio.ClosedResourceError):
                    await source.changed()

            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            source.close()
    source.close()


async def test_a_snapshot_is_taken_on_a_thread_while_the_loop_goes_on(origin: Origin, source: WorkSource) -> None:
    assert (await trio.to_thread.run_sync(source.snapshot)).tasks[0].id == origin.id("a")


def test_a_source_can_be_opened_before_anything_is_there(tmp_path: Path) -> None:
    for kind in ("workplans", "beads"):
        settings = msgspec.convert({"name": "s", "kind": kind, "path": str(tmp_path / "nothing" / "here")}, Source)
        source = open_source(settings)
        with pytest.raises(SourceFailed) as caught:
            source.snapshot()
        assert caught.value.detail["cause"] in ("missing", "directory_missing")
        source.close()
