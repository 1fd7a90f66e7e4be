"""A beads export as a file: half written, foreign, gone, or elsewhere."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from beads_rows import a_row, lines

from coordd.config.settings import Source
from coordd.domain.errors import SourceFailed
from coordd.domain.work import Snapshot
from coordd.sources.beads import PAUSES_S, BeadsSource


class Export:
    """A file, the source that reads it, and what happens to the file each time the source pauses."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.on_pause: Callable[[], object] = lambda: None
        self.pauses: list[float] = []
        self.source = BeadsSource(Source(name="b", kind="beads", path=str(path), watch=False), pause=self._pause)

    def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.on_pause()

    def cause(self) -> object:
        with pytest.raises(SourceFailed) as caught:
            self.source.snapshot()
        return caught.value.detail["cause"]


@pytest.fixture
def export(tmp_path: Path) -> Export:
    return Export(tmp_path / "issues.jsonl")


def test_a_last_line_without_an_end_is_read_when_it_is_whole(export: Export) -> None:
    export.path.write_bytes(lines(a_row("p-1")) + json.dumps(a_row("p-2")).encode())

    assert [task.id for task in export.source.snapshot().tasks] == ["p-1", "p-2"]
    assert export.pauses == []


@pytest.mark.parametrize("cut", [1, 20, -1])
def test_a_torn_last_line_is_waited_for(export: Export, cut: int) -> None:
    whole = lines(a_row("p-1"), a_row("p-2", title="Über…"))
    export.path.write_bytes(whole[: -1 - abs(cut)])
    export.on_pause = lambda: export.path.write_bytes(whole)

    assert [task.id for task in export.source.snapshot().tasks] == ["p-1", "p-2"]
    assert len(export.pauses) == 1


def test_a_file_that_stays_torn_fails_the_source(export: Export) -> None:
    export.path.write_bytes(lines(a_row("p-1")) + b'{"id": "p-2", "tit')

    assert export.cause() == "torn"
    assert tuple(export.pauses) == PAUSES_S


def test_a_line_cut_within_a_character_is_torn_and_not_foreign(export: Export) -> None:
    export.path.write_bytes(lines(a_row("p-1")) + '{"id": "p-2", "title": "ü'.encode()[:-1])

    assert export.cause() == "torn"


def test_an_emptied_file_is_looked_at_again_before_it_is_believed(export: Export) -> None:
    export.path.write_bytes(b"")
    assert export.source.snapshot() == Snapshot()
    assert tuple(export.pauses) == PAUSES_S

    export.pauses.clear()
    assert export.source.snapshot() == Snapshot()
    assert export.pauses == []  # nothing has happened to it since

    export.path.write_bytes(lines(a_row()))
    export.source.snapshot()
    export.path.write_bytes(b"")
    export.on_pause = lambda: export.path.write_bytes(lines(a_row()))
    assert len(export.source.snapshot().tasks) == 1


def test_a_file_that_is_gone_for_an_instant_is_looked_for_again_once_it_was_there(export: Export) -> None:
    assert export.cause() == "missing"
    assert export.pauses == []

    export.path.write_bytes(lines(a_row()))
    export.source.snapshot()
    export.path.unlink()
    export.on_pause = lambda: export.path.write_bytes(lines(a_row()))
    assert len(export.source.snapshot().tasks) == 1


def test_a_file_that_changes_while_it_is_read_is_read_again(export: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    from coordd.sources import reading

    export.path.write_bytes(lines(a_row("p-1")))
    plain, left = reading._read, [1]

    def meddled(fd: int, most: int) -> bytes:
        data = plain(fd, most)
        if left[0]:
            left[0] -= 1
            export.path.write_bytes(lines(a_row("p-1"), a_row("p-2")))
        return data

    monkeypatch.setattr(reading, "_read", meddled)
    assert [task.id for task in export.source.snapshot().tasks] == ["p-1", "p-2"]
    assert len(export.pauses) == 1

    left[0] = 100
    count = itertools.count()
    monkeypatch.setattr(reading, "_stamp", lambda status: next(count))
    assert export.cause() == "changing"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_file_that_is_not_utf_8_fails_the_source(export: Export, encoding: str) -> None:
    export.path.write_bytes((json.dumps(a_row()) + "\r\n").encode(encoding))

    assert export.cause() == "not_utf8"


def test_a_byte_order_mark_blank_lines_and_carriage_returns_are_tolerated(export: Export) -> None:
    export.path.write_bytes(b"\xef\xbb\xbf" + lines(a_row()).replace(b"\n", b"\r\n") + b"\r\n \n")

    assert [task.id for task in export.source.snapshot().tasks] == ["p-1"]
    assert export.source.snapshot().problems == ()


def test_the_file_is_found_in_the_directory_that_is_named(tmp_path: Path) -> None:
    source = BeadsSource(Source(name="b", kind="beads", path=str(tmp_path), watch=False))
    with pytest.raises(SourceFailed) as caught:
        source.snapshot()
    assert caught.value.detail["file"] == str(tmp_path / ".beads" / "issues.jsonl")[-200:]

    (tmp_path / "issues.jsonl").write_bytes(lines(a_row("beside")))
    assert source.snapshot().tasks[0].id == "beside"

    (tmp_path / ".beads").mkdir()
    (tmp_path / ".beads" / "issues.jsonl").write_bytes(lines(a_row("inside")))
    assert source.snapshot().tasks[0].id == "inside"


def test_a_large_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "issues.jsonl"
    path.write_bytes(lines(a_row()) * 10)
    source = BeadsSource(Source(name="b", kind="beads", path=str(path), watch=False, max_bytes=1024))

    with pytest.raises(SourceFailed) as caught:
        source.snapshot()

    assert caught.value.detail["cause"] == "file_too_large"
