"""No change is lost, whatever happens to the directory and by whatever means it is seen."""

import errno
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from coordd.sources import watch as watching
from coordd.sources.watch import LOOK_S, Inotify, Place, Watch, open_watch

linux = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="inotify is Linux's")
Make = Callable[..., Watch]


@pytest.fixture(params=[pytest.param("inotify", marks=linux), "looking"])
def means(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(means: str, tmp_path: Path) -> Iterator[Make]:
    """Opens a watch over `*.toml` in `tmp_path / "plans"`, or over the places given."""
    opened: list[Watch] = []

    def build(*places: Place) -> Watch:
        over = places or (Place(str(tmp_path / "plans"), lambda name: name.endswith(".toml")),)
        opened.append(Watch(over, Inotify() if means == "inotify" else None))
        return opened[-1]

    yield build
    for watch in opened:
        watch.close()


@pytest.fixture
def plans(tmp_path: Path) -> Path:
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "a.toml").write_text("a")
    return tmp_path / "plans"


def replace(path: Path, text: str) -> None:
    (path.parent / "scratch~").write_text(text)
    os.replace(path.parent / "scratch~", path)


def renew(directory: Path) -> None:
    os.rename(directory, directory.parent / "gone")
    os.mkdir(directory)


async def is_told(watch: Watch, within_s: float = 60) -> bool:
    with trio.move_on_after(within_s):
        await watch.changed()
        return True
    return False


CHANGES: dict[str, Callable[[Path], object]] = {
    "written in place": lambda plans: (plans / "a.toml").write_text("longer"),
    "replaced by rename": lambda plans: replace(plans / "a.toml", "b"),
    "made": lambda plans: (plans / "b.toml").write_text(""),
    "removed": lambda plans: (plans / "a.toml").unlink(),
    "renamed away": lambda plans: os.rename(plans / "a.toml", plans / "a.bak"),
    "linked": lambda plans: (plans / "c.toml").symlink_to("a.toml"),
    "linked nowhere": lambda plans: (plans / "c.toml").symlink_to("nowhere"),
    "directory renamed": lambda plans: os.rename(plans, plans.parent / "gone"),
    "directory replaced": lambda plans: renew(plans),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_a_change_made_before_it_is_waited_for_is_told(
    make: Make, plans: Path, change: Callable[[Path], object], autojump_clock: trio.testing.MockClock
) -> None:
    watch = make()
    change(plans)

    assert await is_told(watch)
    assert not await is_told(watch)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_a_change_made_while_it_is_waited_for_is_told(
    make: Make, plans: Path, change: Callable[[Path], object], autojump_clock: trio.testing.MockClock
) -> None:
    watch = make()
    told = []
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            told.append(await is_told(watch))

        nursery.start_soon(wait)
        await trio.sleep(3)
        assert told == []
        change(plans)

    assert told == [True]


async def test_nothing_is_told_while_nothing_happens(
    make: Make, plans: Path, autojump_clock: trio.testing.MockClock
) -> None:
    assert not await is_told(make(), within_s=3600)


async def test_other_files_are_not_told(make: Make, plans: Path, autojump_clock: trio.testing.MockClock) -> None:
    watch = make()
    for number in range(200):
        (plans / f"{number}.db-wal").write_text("x")
    (plans / "old").mkdir()

    assert not await is_told(watch)

    (plans / "a.toml").write_text("longer")
    assert await is_told(watch)


async def test_a_cancelled_wait_loses_no_change(
    make: Make, plans: Path, autojump_clock: trio.testing.MockClock
) -> None:
    watch = make()
    assert not await is_told(watch, within_s=1)
    (plans / "a.toml").write_text("longer")
    assert not await is_told(watch, within_s=watching.QUIET_S / 2)  # cancelled after it was seen, before it was told

    assert await is_told(watch)
    assert not await is_told(watch)


async def test_a_burst_is_told_once_and_a_change_without_end_is_told_all_the_same(
    make: Make, plans: Path, autojump_clock: trio.testing.MockClock
) -> None:
    watch = make()
    async with trio.open_nursery() as nursery:

        async def write(times: int) -> None:
            for number in range(times):
                (plans / "a.toml").write_text("x" * number)
                await trio.sleep(watching.QUIET_S / 2)

        nursery.start_soon(write, 10)
        await watch.changed()
        assert (plans / "a.toml").read_text() == "x" * 9

    assert not await is_told(watch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write, 100_000)
        await trio.testing.wait_all_tasks_blocked()
        started = trio.current_time()
        await watch.changed()
        assert trio.current_time() - started <= watching.BURST_S + LOOK_S + 0.01
        nursery.cancel_scope.cancel()


async def test_a_directory_that_does_not_exist_yet_is_watched_once_it_does(
    make: Make, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    watch = make()
    assert not await is_told(watch)

    (tmp_path / "plans").mkdir()
    assert await is_told(watch, within_s=LOOK_S + watching.QUIET_S + 0.1)
    assert not await is_told(watch)

    (tmp_path / "plans" / "a.toml").write_text("a")
    assert await is_told(watch)


async def test_a_directory_that_was_removed_is_watched_again_when_it_is_back(
    make: Make, plans: Path, autojump_clock: trio.testing.MockClock
) -> None:
    watch = make()
    (plans / "a.toml").unlink()
    os.rmdir(plans)
    assert await is_told(watch)
    assert not await is_told(watch)

    os.mkdir(plans)
    assert await is_told(watch)
    (plans / "a.toml").write_text("a")
    assert await is_told(watch)
    assert not await is_told(watch)


async def test_a_directory_removed_and_made_again_at_once_is_watched(
    make: Make, plans: Path, autojump_clock: trio.testing.MockClock
) -> None:
    watch = make()
    for _ in range(5):  # the new one may have the number of the old one
        for name in os.listdir(plans):
            os.unlink(plans / name)
        os.rmdir(plans)
        os.mkdir(plans)
        assert await is_told(watch)
        (plans / "a.toml").write_text("a")
        assert await is_told(watch)


async def test_a_directory_moved_away_with_the_one_above_it_is_told_at_the_next_wait(
    make: Make, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    here = tmp_path / "above" / "plans"
    here.mkdir(parents=True)
    watch = make(Place(str(here), lambda name: True))
    os.rename(tmp_path / "above", tmp_path / "moved")
    here.mkdir(parents=True)
    (here / "a.toml").write_text("a")

    assert await is_told(watch)
    assert not await is_told(watch)
    (here / "b.toml").write_text("b")
    assert await is_told(watch)


async def test_a_directory_below_a_watched_one_needs_no_looking_until_it_is_made(
    make: Make, means: str, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    above = Place(str(tmp_path), lambda name: name == "below")
    below = Place(str(tmp_path / "below"), lambda name: name == "x")
    watch = make(above, below)
    assert watch._must_look() is (means == "looking")

    (tmp_path / "below").mkdir()
    assert await is_told(watch)
    assert watch._must_look() is (means == "looking")
    (tmp_path / "below" / "x").touch()
    assert await is_told(watch)


async def test_two_places_may_be_one_directory(make: Make, plans: Path, autojump_clock: trio.testing.MockClock) -> None:
    watch = make(Place(str(plans), lambda name: name == "a"), Place(str(plans), lambda name: name == "b"))
    for name in ("a", "b"):
        (plans / name).touch()
        assert await is_told(watch)
        assert not await is_told(watch)
    renew(plans)
    assert await is_told(watch)
    (plans / "b").touch()
    assert await is_told(watch)


async def test_closing_ends_a_wait_and_gives_back_the_descriptor(
    make: Make, plans: Path, autojump_clock: trio.testing.MockClock
) -> None:
    before = len(os.listdir("/dev/fd"))
    watch = make()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                with pytest.raises(trio.ClosedResourceError):
                    await watch.changed()

            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            watch.close()
    watch.close()

    assert len(os.listdir("/dev/fd")) == before
    with pytest.raises(trio.ClosedResourceError):
        await watch.changed()


@linux
async def test_a_queue_that_overflowed_is_a_change(
    plans: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    inotify = Inotify()
    watch = Watch((Place(str(plans), lambda name: name == "a.toml"),), inotify)
    left = [watching.Event(-1, 0x4000, "")]
    monkeypatch.setattr(inotify, "events", lambda: iter([left.pop()] if left else []))
    try:
        assert await is_told(watch)
        assert not await is_told(watch)
    finally:
        watch.close()


@linux
async def test_where_the_kernel_refuses_to_watch_the_files_are_looked_at(
    plans: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: trio.testing.MockClock,
) -> None:
    def refused(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(Inotify, "add", refused)
    below = Place(str(plans / "below"), lambda name: True)
    watch = open_watch((Place(str(plans), lambda name: name in ("a.toml", "below")), below))
    try:
        (plans / "a.toml").write_text("longer")
        assert await is_told(watch)
        (plans / "below").mkdir()
        assert await is_told(watch)
        (plans / "below" / "b").touch()
        assert await is_told(watch)
    finally:
        watch.close()
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2  # one a place, not one a look


@linux
async def test_a_directory_that_alone_cannot_be_watched_is_looked_at(
    plans: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    inotify = Inotify()
    plain = inotify.add

    def add(directory: str) -> int:
        if directory.endswith("below"):
            raise OSError(errno.ENOSPC, "no space")
        return plain(directory)

    monkeypatch.setattr(inotify, "add", add)
    (plans / "below").mkdir()
    below = Place(str(plans / "below"), lambda name: True)
    watch = Watch((Place(str(plans), lambda name: name == "below"), below), inotify)
    try:
        told = []
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                told.append(await is_told(watch))

            nursery.start_soon(wait)
            await trio.sleep(3)
            (plans / "below" / "b").touch()
        assert told == [True]
    finally:
        watch.close()


@linux
async def test_a_directory_replaced_while_it_begins_to_be_watched_is_watched(
    plans: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    inotify = Inotify()
    plain = inotify.add

    def add(directory: str) -> int:
        number = plain(directory)
        if not (plans.parent / "gone").exists():
            renew(plans)
        return number

    monkeypatch.setattr(inotify, "add", add)
    watch = Watch((Place(str(plans), lambda name: True),), inotify)
    try:
        assert await is_told(watch)
        (plans / "b").touch()
        assert await is_told(watch)
        assert not await is_told(watch)
    finally:
        watch.close()


@linux
async def test_without_inotify_the_files_are_looked_at(
    plans: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: trio.testing.MockClock,
) -> None:
    def refused(self: Inotify) -> None:
        raise OSError(errno.EMFILE, "too many")

    monkeypatch.setattr(Inotify, "__init__", refused)
    watch = open_watch((Place(str(plans), lambda name: True),))
    replace(plans / "a.toml", "b")

    assert await is_told(watch)
    assert "twice a second" in caplog.text
    watch.close()


@linux
def test_removing_a_watch_that_the_kernel_has_removed_is_no_error(plans: Path) -> None:
    inotify = Inotify()
    number = inotify.add(str(plans))
    inotify.remove(number)
    inotify.remove(number)
    inotify.close()

    with pytest.raises(OSError, match="Bad file descriptor"):
        inotify.remove(number)
