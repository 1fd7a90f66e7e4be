"""Log lines, where they go, and how much of them is kept."""

import json
import logging
import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordd.domain.errors import StartRefused
from coordd.supervision import logs
from coordd.supervision.logs import CappedFile, JsonLines, TextLines, set_up, tail, trim_stderr

TEXT_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (debug|info|warning|error|critical) [\w.]+ .*")
anything = st.text(alphabet=st.characters(), max_size=80)  # surrogates and controls too


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("coordd")
    before = list(root.handlers), root.level, ours.level
    yield
    for handler in [handler for handler in root.handlers if handler not in before[0]]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(before[1])
    ours.setLevel(before[2])


def record(
    message: str, *args: object, level: int = logging.INFO, exc: BaseException | None = None
) -> logging.LogRecord:
    info = None if exc is None else (type(exc), exc, exc.__traceback__)
    return logging.LogRecord("coordd.services.reaper", level, "", 0, message, args, info)


def at(seconds: float, message: str) -> logging.LogRecord:
    made = record(message)
    made.created = seconds
    return made


def test_a_line_has_the_instant_in_utc_the_level_the_logger_and_the_message() -> None:
    line = TextLines(journal=False).format(at(1_796_040_000.1239, "woke up"))
    assert line == "2026-11-30T12:00:00.123Z info coordd.services.reaper woke up"


def test_under_the_journal_a_line_has_a_priority_and_no_instant() -> None:
    format = TextLines(journal=True).format
    levels = [logging.CRITICAL, logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG]
    assert [format(record("x", level=level))[:3] for level in levels] == ["<2>", "<3>", "<4>", "<6>", "<7>"]
    assert format(record("woke up")) == "<6>coordd.services.reaper woke up"


@given(anything)
def test_no_text_makes_a_second_line_or_leaves_one_unprintable(text: str) -> None:
    line = TextLines(journal=False).format(record("%s", text))
    assert line.isprintable()
    assert TEXT_LINE.fullmatch(line)


@given(anything)
def test_a_json_line_is_one_line_of_ascii_that_reads_back(text: str) -> None:
    line = JsonLines(journal=False).format(record("%s", text))
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["message"] == text


def test_a_forged_record_in_a_message_is_shown_as_what_it_is() -> None:
    line = TextLines(journal=False).format(record("%s", "x\n2026-11-30T12:00:00.000Z info coordd all is well\x1b[2K"))
    assert line.endswith(r"x\n2026-11-30T12:00:00.000Z info coordd all is well\x1b[2K")


@pytest.mark.parametrize("journal", [False, True])
def test_no_line_of_a_traceback_can_pass_for_a_record(journal: bool) -> None:
    error = ValueError("x\n2026-11-30T12:00:00.000Z info coordd.app forged\r\x85<0>forged")
    head, *lines = TextLines(journal=journal).format(record("failed", exc=error)).split("\n")
    assert head.endswith("failed")
    assert any("forged" in line for line in lines)
    assert all(line.startswith("<6>  | " if journal else "  | ") for line in lines)
    assert all(line.isprintable() for line in lines)


def test_a_json_record_holds_its_traceback() -> None:
    said = json.loads(JsonLines(journal=False).format(at(0, "x")))
    assert said == {
        "time": "1970-01-01T00:00:00.000Z",
        "level": "info",
        "logger": "coordd.services.reaper",
        "message": "x",
    }
    said = json.loads(JsonLines(journal=False).format(record("failed", exc=ValueError("why"))))
    assert said["exception"].endswith("ValueError: why")


def test_coordd_speaks_at_its_level_and_libraries_only_warn() -> None:
    stream = StringIO()
    set_up(level="debug", stream=stream, environ={})
    logging.getLogger("coordd.app").debug("ours")
    logging.getLogger("httpx").info("Authorization: secret")
    logging.getLogger("httpx").warning("theirs")
    assert [line.split(" ", 1)[1] for line in stream.getvalue().splitlines()] == [
        "debug coordd.app ours",
        "warning httpx theirs",
    ]


def test_a_second_set_up_replaces_the_first() -> None:
    first, second = StringIO(), StringIO()
    set_up(stream=first, environ={})
    set_up(level="error", format="json", stream=second, environ={})
    logging.getLogger("coordd.app").warning("unheard")
    logging.getLogger("coordd.app").error("heard")
    assert first.getvalue() == ""
    assert json.loads(second.getvalue())["message"] == "heard"


def test_the_journal_is_known_by_the_very_file_that_stderr_is(tmp_path: Path) -> None:
    with open(tmp_path / "journal", "w") as journal, open(tmp_path / "other", "w") as other:
        found = os.fstat(journal.fileno())
        environ = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        assert logs.is_journal(journal, environ)
        assert not logs.is_journal(other, environ)
        assert not logs.is_journal(journal, {})
        assert not logs.is_journal(StringIO(), environ)
        set_up(stream=journal, environ=environ)
        logging.getLogger("coordd.app").warning("x")
    assert (tmp_path / "journal").read_text() == "<4>coordd.app x\n"


def test_the_log_file_is_0600_whatever_the_umask_and_whatever_it_was(tmp_path: Path) -> None:
    path = tmp_path / "state" / "coordd.log"
    before = os.umask(0)
    try:
        set_up(file=str(path))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        path.chmod(0o644)
        set_up(file=str(path))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_a_log_file_goes_on_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "coordd.log"
    for message in ("first", "second"):
        set_up(file=str(path))
        logging.getLogger("coordd.app").info(message)
    assert [line.split()[-1] for line in path.read_text().splitlines()] == ["first", "second"]


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_what_is_not_a_plain_file_is_refused_and_kept(tmp_path: Path, kind: str) -> None:
    path, victim = tmp_path / "coordd.log", tmp_path / "victim"
    victim.write_text("kept")
    victim.chmod(0o644)
    if kind == "link":
        path.symlink_to(victim)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(StartRefused) as refusal:
        set_up(file=str(path))
    assert refusal.value.detail == {"cause": "log_file"}
    assert (victim.read_text(), stat.S_IMODE(victim.stat().st_mode)) == ("kept", 0o644)


def capped(path: Path, max_bytes: int) -> CappedFile:
    handler = CappedFile(str(path), max_bytes)
    handler.setFormatter(TextLines(journal=False))
    return handler


def test_a_full_log_becomes_the_older_one_while_the_daemon_runs(tmp_path: Path) -> None:
    path = tmp_path / "coordd.log"
    handler = capped(path, 1000)
    for number in range(200):
        handler.handle(record("number %d", number))
        assert path.stat().st_size <= 1000
    handler.close()
    assert sorted(os.listdir(tmp_path)) == ["coordd.log", "coordd.log.1"]
    older, newer = (tmp_path / "coordd.log.1").read_text(), path.read_text()
    numbers = [int(line.split()[-1]) for line in (older + newer).splitlines()]
    assert numbers == list(range(numbers[0], 200))  # whole lines, in order, up to the last
    assert 0 < len(older) <= 1000
    assert stat.S_IMODE((tmp_path / "coordd.log.1").stat().st_mode) == 0o600


def test_threads_that_write_at_once_tear_no_line(tmp_path: Path) -> None:
    path = tmp_path / "coordd.log"
    handler = capped(path, 3000)

    def write(name: int) -> None:
        for _ in range(200):
            handler.handle(record("%s", str(name) * 40))

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    handler.close()
    lines = ((tmp_path / "coordd.log.1").read_text() + path.read_text()).splitlines()
    assert all(re.fullmatch(r"(\d)\1{39}", line.split()[-1]) for line in lines)
    assert sum(name.startswith("coordd.log") for name in os.listdir(tmp_path)) == 2


def test_a_record_larger_than_the_file_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "coordd.log"
    handler = capped(path, 500)
    handler.handle(record("x" * 5000))
    handler.handle(record("next"))
    handler.close()
    assert (tmp_path / "coordd.log.1").stat().st_size == 500
    assert path.read_text().endswith("next\n")


def test_a_log_that_was_too_large_before_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "coordd.log"
    path.write_text("old\n" * 1000)
    handler = capped(path, 500)
    handler.handle(record("new"))
    handler.close()
    assert path.read_text().count("\n") == 1


def test_a_full_disk_costs_whole_records_that_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "coordd.log"
    handler = capped(path, 10_000)
    handler.handle(record("before"))
    really = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda fd, data: really(fd, data[:10]))  # the kernel writes what still fits
        handler.handle(record("lost"))
        handler.handle(record("lost"))
    handler.handle(record("after"))
    handler.close()
    lines = path.read_text().splitlines()
    assert all(TEXT_LINE.fullmatch(line) for line in lines)
    assert [line.split(" ", 3)[3] for line in lines] == ["before", "2 records were lost: no room", "after"]


def test_a_log_whose_place_is_taken_loses_records_and_not_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "coordd.log"
    handler = capped(path, 500)
    really = os.replace

    def replaced_by_a_link(source: str, target: str) -> None:
        really(source, target)
        path.symlink_to(tmp_path / "victim")

    with monkeypatch.context() as taken:
        taken.setattr(os, "replace", replaced_by_a_link)
        for _ in range(10):
            handler.handle(record("x" * 100))
            path.unlink() if path.is_symlink() else None
    handler.handle(record("after"))
    handler.close()
    assert not (tmp_path / "victim").exists()
    assert path.read_text().splitlines()[-1].endswith("after")


def test_a_log_call_with_wrong_arguments_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    handler = capped(tmp_path / "coordd.log", 500)
    handler.handle(record("%d", "x"))
    handler.close()
    assert "Logging error" in capsys.readouterr().err


def test_the_tail_reaches_into_the_older_file(tmp_path: Path) -> None:
    path = tmp_path / "coordd.log"
    (tmp_path / "coordd.log.1").write_text("a\nb\n")
    path.write_text("c\nd\n")
    assert tail(str(path), 3) == ["b", "c", "d"]
    assert tail(str(path), 1) == ["d"]
    assert tail(str(path), 9) == ["a", "b", "c", "d"]
    assert tail(str(path), 0) == []


@pytest.mark.parametrize("kind", ["missing", "link", "pipe", "directory", "empty"])
def test_what_is_no_log_has_no_lines(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / "coordd.log", tmp_path / "other"
    other.write_text("secret\n")
    if kind == "link":
        path.symlink_to(other)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "empty":
        path.touch()
    assert tail(str(path), 5) == []


def test_the_tail_shows_a_line_that_has_not_ended_and_nothing_that_moves_a_cursor(tmp_path: Path) -> None:
    path = tmp_path / "coordd.log"
    path.write_bytes(b"a\nb\x1b[2J\xff")
    assert tail(str(path), 2) == ["a", "b\\x1b[2J\N{REPLACEMENT CHARACTER}"]


@given(
    lengths=st.lists(st.one_of(st.integers(0, 30), st.integers(65_000, 66_000)), max_size=12),
    wanted=st.integers(1, 15),
    ends=st.booleans(),
)
def test_the_tail_is_the_end_of_all_lines(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], wanted: int, ends: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / f"tail-{os.getpid()}.log"
    lines = [chr(97 + index) * length for index, length in enumerate(lengths)]
    text = "\n".join(lines) + ("\n" if ends and lines else "")
    path.write_text(text)
    expected = text.split("\n")
    if expected[-1] == "":
        del expected[-1]
    assert tail(str(path), wanted) == expected[-wanted:]


def test_the_tail_of_an_endless_line_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "TAIL_BYTES", 1000)
    path = tmp_path / "coordd.log"
    path.write_text("x" * 5000 + "\nend\n")
    assert tail(str(path), 10) == ["end"]


def run_python(code: str, *args: str, stderr: int) -> None:
    subprocess.run([sys.executable, "-c", code, *args], stderr=stderr, check=True, timeout=60)


def test_a_stderr_file_that_has_grown_is_emptied_and_no_other(tmp_path: Path) -> None:
    path, other = tmp_path / "coordd.stderr", tmp_path / "other"
    code = (
        "import sys; from coordd.supervision.logs import trim_stderr; "
        "trim_stderr(sys.argv[1], 1000); print('new', file=sys.stderr)"
    )
    for name, size in ((path, 2000), (other, 2000), (path, 500)):
        name.write_text("x" * size)
        with open(name, "a") as stderr:
            run_python(code, str(path), stderr=stderr.fileno())
        expected = "new\n" if (name, size) == (path, 2000) else "x" * size + "new\n"
        assert name.read_text() == expected


def test_a_missing_stderr_file_is_nothing_to_trim(tmp_path: Path) -> None:
    trim_stderr(str(tmp_path / "missing"), 1)


def test_setting_up_the_log_loads_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; from coordd.supervision.logs import set_up; import logging; "
        "set_up(file=sys.argv[1]); logging.getLogger('coordd').error('x'); "
        "heavy = {'logging.handlers', 'socketserver', 'json', 'datetime', 'trio'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    run_python(code, str(tmp_path / "coordd.log"), stderr=sys.__stderr__.fileno() if sys.__stderr__ else 2)
