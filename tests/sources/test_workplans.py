"""A directory of plans: what is read, what fails it, and what changes under the reader's hands."""

import itertools
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordd.config.settings import Source
from coordd.domain.errors import SourceFailed
from coordd.domain.work import Problem, Snapshot
from coordd.sources.workplans import LOOKS, PAUSES_S, PLAN_BYTES, PLANS_MAX, WorkplansSource


class Plans:
    """A directory, and the source that reads it."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        self.on_pause: Callable[[], object] = lambda: None
        self.pauses: list[float] = []
        settings = Source(name="w", kind="workplans", path=str(path), watch=False, **options)
        self.source = WorkplansSource(settings, pause=self._pause)

    def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.on_pause()

    def write(self, name: str, text: str | bytes) -> None:
        (self.path / name).write_bytes(text.encode() if isinstance(text, str) else text)

    def failure(self) -> SourceFailed:
        with pytest.raises(SourceFailed) as caught:
            self.source.snapshot()
        return caught.value

    def cause(self) -> object:
        return self.failure().detail["cause"]


@pytest.fixture
def plans(tmp_path: Path) -> Plans:
    return Plans(tmp_path)


A_TASK = '[workplan]\nstatus = "active"\n[[task]]\nid = "a"\n'


def test_every_toml_file_of_the_directory_is_a_plan_and_nothing_else_is(plans: Plans) -> None:
    plans.write("b.toml", A_TASK)
    plans.write("a.toml", b"\xef\xbb\xbf" + A_TASK.replace("\n", "\r\n").encode())
    for name in (".b.toml", ".#b.toml", "b.toml~", ".b.toml.swp", "#b.toml#", "b.toml.bak", "README.md", "4913"):
        plans.write(name, "not = [toml")
    (plans.path / ".#c.toml").symlink_to("someone@host.123")
    (plans.path / "old").mkdir()
    plans.write("old/c.toml", "not = [toml")

    snapshot = plans.source.snapshot()

    assert [plan.id for plan in snapshot.plans] == ["a", "b"]
    assert [task.id for task in snapshot.tasks] == ["a/a", "b/a"]
    assert snapshot.problems == ()


def test_an_empty_directory_is_an_empty_snapshot(plans: Plans) -> None:
    assert plans.source.snapshot() == Snapshot()


def test_two_files_of_one_plan_are_both_left_out(plans: Plans) -> None:
    plans.write("a.toml", A_TASK + '[[message]]\nid = "m"')
    plans.write("b.toml", '[workplan]\nid = "a"\n[[task]]\nid = "b"\n[[task]]\nid = "c"\ntitle = 1')
    plans.write("c.toml", A_TASK + 'depends_on = ["a/a"]')

    snapshot = plans.source.snapshot()

    assert [task.id for task in snapshot.tasks] == ["c/a"]
    assert [edge.to_id for edge in snapshot.edges] == ["a/a"]
    assert set(snapshot.problems) == {
        Problem("a", "duplicate_id"),
        Problem("a/a", "plan_broken"),
        Problem("a/m", "plan_broken"),
        Problem("a/b", "plan_broken"),
        Problem("a/c", "bad_title"),
    }


@pytest.mark.parametrize(
    ("content", "cause", "detail"),
    [
        (b"id = \nx = 1\n", "file_broken", {"line": 1}),
        (b"id = ", "file_broken", {}),
        (b'[workplan]\nid = "a"\nid = "b"\n', "file_broken", {"line": 3}),
        (b"a = " + b"[" * 5000, "file_broken", {}),
        (b"a = " + b"9" * 5000, "file_broken", {}),
        (b'a = "\xff"', "not_utf8", {}),
        ("a = 1".encode("utf-16"), "not_utf8", {}),
        (b"#" * (PLAN_BYTES + 1), "file_too_large", {"limit": PLAN_BYTES}),
    ],
)
def test_a_file_that_cannot_be_read_fails_the_source_and_is_named(
    plans: Plans, content: bytes, cause: str, detail: dict[str, object]
) -> None:
    plans.write("good.toml", A_TASK)
    plans.write("bad.toml", content)

    failure = plans.failure()

    assert failure.detail["cause"] == cause
    assert str(failure.detail["file"]).endswith("bad.toml")
    assert "bad.toml" in str(failure)
    assert detail.items() <= failure.detail.items()


def test_what_is_no_file_fails_the_source(plans: Plans) -> None:
    name = plans.path / "x.toml"
    name.mkdir()
    assert plans.cause() == "is_directory"
    name.rmdir()
    name.symlink_to("x.toml")
    assert plans.cause() == "symlink_loop"
    name.unlink()
    name.symlink_to("nowhere")
    assert plans.cause() == "dangling_link"
    name.unlink()
    os.mkfifo(name)
    assert plans.cause() == "not_a_file"
    name.unlink()
    name.symlink_to("/proc/self/mem")
    assert plans.cause() == "unreadable"
    name.unlink()
    assert plans.source.snapshot() == Snapshot()


def test_a_directory_that_is_missing_or_none_fails_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Plans(tmp_path / "none").cause() == "directory_missing"
    (tmp_path / "file").touch()
    assert Plans(tmp_path / "file").cause() == "not_a_directory"

    def denied(path: str) -> list[str]:
        raise PermissionError(13, "denied")

    monkeypatch.setattr(os, "listdir", denied)
    assert Plans(tmp_path).cause() == "unreadable"


def test_a_smaller_limit_of_the_configuration_holds(tmp_path: Path) -> None:
    plans = Plans(tmp_path, max_bytes=1024)
    plans.write("a.toml", "#" * 1025)

    assert plans.cause() == "file_too_large"


def test_a_file_that_vanishes_between_listing_and_reading_is_no_failure(
    plans: Plans, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans.write("a.toml", A_TASK)
    plans.write("b.toml", A_TASK)
    plain, listed = os.listdir, 0

    def vanishing(path: str) -> list[str]:
        nonlocal listed
        listed += 1
        names = plain(path)
        (plans.path / "b.toml").unlink(missing_ok=True)
        return names

    monkeypatch.setattr(os, "listdir", vanishing)
    assert [plan.id for plan in plans.source.snapshot().plans] == ["a"]
    assert listed == 2

    monkeypatch.setattr(os, "listdir", lambda path: ["ghost.toml"])
    assert plans.cause() == "changing"


def test_a_file_that_never_stops_changing_fails_the_source(plans: Plans, monkeypatch: pytest.MonkeyPatch) -> None:
    from coordd.sources import reading

    plans.write("a.toml", A_TASK)
    count = itertools.count()
    monkeypatch.setattr(reading, "_stamp", lambda status: next(count))

    assert plans.cause() == "changing"
    assert tuple(plans.pauses) == PAUSES_S


def test_too_many_files_or_problems_fail_the_source(plans: Plans, monkeypatch: pytest.MonkeyPatch) -> None:
    plans.write("a.toml", "".join("[[task]]\n" for _ in range(1001)))
    assert plans.cause() == "too_many_problems"

    monkeypatch.setattr(os, "listdir", lambda path: [f"{n}.toml" for n in range(PLANS_MAX + 1)])
    assert plans.cause() == "too_many_files"
    assert LOOKS == 3


def test_a_file_is_parsed_again_only_when_its_text_has_changed(plans: Plans, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, parsed = tomllib.loads, 0

    def counted(text: str) -> dict[str, Any]:
        nonlocal parsed
        parsed += 1
        return plain(text)

    monkeypatch.setattr(tomllib, "loads", counted)
    plans.write("a.toml", A_TASK)
    plans.write("b.toml", A_TASK)
    first = plans.source.snapshot()
    assert plans.source.snapshot() == first
    assert parsed == 2

    status = os.stat(plans.path / "a.toml")
    plans.write("a.toml", A_TASK.replace('"a"', '"b"'))
    os.utime(plans.path / "a.toml", ns=(status.st_atime_ns, status.st_mtime_ns))  # size and time tell nothing
    assert [task.id for task in plans.source.snapshot().tasks] == ["a/b", "b/a"]
    assert parsed == 3
