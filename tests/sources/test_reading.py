"""Whatever stands at the name of a file, reading it ends and says what it is."""

import os
import socket
from pathlib import Path

import pytest

from coordd.domain.errors import SourceFailed
from coordd.sources.reading import read_file


def cause(path: Path | str, max_bytes: int = 100) -> object:
    with pytest.raises(SourceFailed) as caught:
        read_file(str(path), source="s", max_bytes=max_bytes)
    assert caught.value.detail["source"] == "s"
    return caught.value.detail["cause"]


def test_a_regular_file_is_read_whole_and_known_by_its_stamp(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100)

    first = read_file(str(path), source="s", max_bytes=100)
    again = read_file(str(path), source="s", max_bytes=100)
    path.write_bytes(b"y" * 99)

    assert (first.data, first.steady) == (b"x" * 100, True)
    assert again.stamp == first.stamp
    assert read_file(str(path), source="s", max_bytes=100).stamp != first.stamp


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "link").symlink_to("a")

    assert read_file(str(tmp_path / "link"), source="s", max_bytes=9).data == b"x"


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "file").write_bytes(b"x")

    assert cause(tmp_path / "directory") == "is_directory"
    assert cause(tmp_path / "pipe") == "not_a_file"
    assert cause(tmp_path / "device") == "not_a_file"
    assert cause(tmp_path / "loop") == "symlink_loop"
    assert cause(tmp_path / "dangling") == "dangling_link"
    assert cause(tmp_path / "nothing") == "missing"
    assert cause(tmp_path / "file" / "below") == "missing"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
        assert cause(tmp_path / "socket") == "not_a_file"


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="no /proc")
def test_a_file_that_the_disk_does_not_give_is_unreadable() -> None:
    assert cause("/proc/self/mem") == "unreadable"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "a").touch(mode=0o000)

    assert cause(tmp_path / "a") == "unreadable"


def test_permission_denied_is_unreadable_and_told_with_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> int:
        raise PermissionError(13, "denied", "the name of a secret")

    (tmp_path / "a").touch()
    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(SourceFailed) as caught:
        read_file(str(tmp_path / "a"), source="s", max_bytes=9)
    assert caught.value.detail["cause"] == "unreadable"
    assert caught.value.detail["errno"] == "EACCES"
    assert "secret" not in str(caught.value)


def test_a_file_that_is_or_grows_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 101)
    assert cause(path) == "file_too_large"

    path.write_bytes(b"x" * 100)
    plain = os.read

    def growing(fd: int, count: int) -> bytes:
        with open(path, "ab") as file:
            file.write(b"y" * 50)
        return plain(fd, count)

    monkeypatch.setattr(os, "read", growing)
    assert cause(path) == "file_too_large"


def test_a_file_that_grows_or_is_replaced_while_it_is_read_is_not_steady(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    plain, done = os.read, set()

    def with_replacement(fd: int, count: int) -> bytes:
        (tmp_path / "b").write_bytes(b"x" * 10)
        os.replace(tmp_path / "b", path)
        return plain(fd, count)

    def with_growth(fd: int, count: int) -> bytes:
        data = plain(fd, count)
        if fd not in done:
            done.add(fd)
            with open(path, "ab") as file:
                file.write(b"y")
        return data

    for meddling in (with_replacement, with_growth):
        path.write_bytes(b"x" * 10)
        with monkeypatch.context() as patched:
            patched.setattr(os, "read", meddling)
            assert not read_file(str(path), source="s", max_bytes=100).steady


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "large").write_bytes(b"x" * 101)
    before = os.listdir("/dev/fd")

    for name in ("directory", "large", "nothing"):
        cause(tmp_path / name)

    assert len(os.listdir("/dev/fd")) == len(before)
