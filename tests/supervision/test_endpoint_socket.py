"""The control socket on a real file system."""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from coordd.domain.errors import StartRefused
from coordd.supervision.endpoint_socket import PATH_BYTES, bind, check_path, identity, unlink_own


@pytest.fixture
def path(run_dir: Path) -> str:
    return str(run_dir / "coordd" / "control.sock")


def refusal_of(path: str) -> dict[str, str | int]:
    with pytest.raises(StartRefused) as refusal:
        bind(path)
    assert refusal.value.code == "start_refused"
    return refusal.value.detail


def mode(path: str) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def leave_dead(path: str) -> None:
    """A socket file that no process listens at, as a killed daemon leaves it."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.bind(path)


def test_the_socket_is_0600_in_a_directory_of_0700_whatever_the_umask(path: str) -> None:
    before = os.umask(0)
    try:
        with bind(path):
            assert (mode(os.path.dirname(path)), mode(path)) == (0o700, 0o600)
            assert os.umask(0) == 0  # as it was
    finally:
        os.umask(before)


def test_a_client_reaches_it_at_once(path: str) -> None:
    with bind(path) as server, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(path)
        accepted, _ = server.accept()
        accepted.close()
        assert not server.getblocking()
        assert not server.get_inheritable()


def test_missing_directories_above_are_made(run_dir: Path) -> None:
    path = str(run_dir / "a" / "b" / "control.sock")
    with bind(path):
        assert mode(str(run_dir / "a" / "b")) == 0o700


def test_a_dead_socket_is_replaced(path: str) -> None:
    leave_dead(path)
    with bind(path), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(path)


def test_a_living_server_is_left_alone(path: str) -> None:
    with bind(path) as server:
        assert refusal_of(path) == {"cause": "already_running"}
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(path)  # its path still leads to it
        server.accept()[0].close()


@pytest.mark.skipif(PATH_BYTES != 107, reason="elsewhere than on Linux a full queue looks like a dead socket")
def test_a_living_server_with_a_full_queue_is_left_alone(path: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as busy:
        busy.bind(path)
        busy.listen(0)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as waiting:
            waiting.connect(path)
            assert refusal_of(path) == {"cause": "already_running"}
    assert os.path.exists(path)


def a_file(path: str) -> None:
    with open(path, "w") as file:
        file.write("kept")


def a_link_to_a_socket(path: str) -> None:
    leave_dead(path + ".real")
    os.symlink(path + ".real", path)


def a_dangling_link(path: str) -> None:
    os.symlink(path + ".nowhere", path)


@pytest.mark.parametrize("put", [a_file, os.mkdir, os.mkfifo, a_link_to_a_socket, a_dangling_link])
def test_whatever_else_stands_at_the_path_is_refused_and_kept(path: str, put: Callable[[str], None]) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700)
    put(path)
    before = os.lstat(path)
    assert refusal_of(path) == {"cause": "socket_taken"}
    assert os.path.samestat(os.lstat(path), before)


def test_a_living_socket_of_another_kind_is_refused_and_kept(path: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(path)
        assert refusal_of(path) == {"cause": "socket_taken"}
        assert os.path.exists(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_socket_of_another_user_is_refused_and_kept(path: str) -> None:
    leave_dead(path)
    os.chown(path, 12_345, -1)
    assert refusal_of(path) == {"cause": "socket_taken"}
    assert os.path.exists(path)


@pytest.mark.parametrize("wrong", [0o770, 0o720, 0o701, 0o755, 0o1777])
def test_a_directory_that_others_can_enter_or_change_is_refused(path: str, wrong: int) -> None:
    directory = os.path.dirname(path)
    os.mkdir(directory)
    os.chmod(directory, wrong)
    assert refusal_of(path) == {"cause": "socket_directory"}
    assert mode(directory) == wrong  # nor is it changed behind its owner's back
    assert os.listdir(directory) == []


def test_a_directory_that_is_a_link_is_refused(path: str, run_dir: Path) -> None:
    (run_dir / "real").mkdir(mode=0o700)
    os.symlink(run_dir / "real", os.path.dirname(path))
    assert refusal_of(path) == {"cause": "socket_directory"}


def test_a_directory_that_is_a_file_is_refused(path: str) -> None:
    a_file(os.path.dirname(path))
    assert refusal_of(path) == {"cause": "socket_directory"}


def test_a_directory_of_another_user_is_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    assert refusal_of(path) == {"cause": "socket_directory"}


def test_a_directory_that_cannot_be_made_is_refused(run_dir: Path) -> None:
    a_file(str(run_dir / "file"))
    assert refusal_of(str(run_dir / "file" / "b" / "control.sock")) == {"cause": "socket_directory"}


def test_a_file_system_that_ignores_modes_is_refused_and_the_socket_removed(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700)
    monkeypatch.setattr(os, "umask", lambda mask: 0)  # to the same effect
    assert refusal_of(path) == {"cause": "socket_bind"}
    assert not os.path.lexists(path)


def path_of(length: int, run_dir: Path) -> str:
    """A path of `length` bytes, which are more than its characters."""
    path = f"{run_dir}/coordd/é"
    return path + "x" * (length - len(os.fsencode(path)))


def test_the_longest_path_that_the_kernel_takes_is_taken(run_dir: Path) -> None:
    path = path_of(PATH_BYTES, run_dir)
    with bind(path):
        assert stat.S_ISSOCK(os.lstat(path).st_mode)


def test_one_byte_more_is_refused_with_both_lengths(run_dir: Path) -> None:
    path = path_of(PATH_BYTES + 1, run_dir)
    with pytest.raises(StartRefused, match=f"{PATH_BYTES + 1} bytes.*{PATH_BYTES}") as refusal:
        bind(path)
    assert refusal.value.detail == {"cause": "socket_path_too_long", "length": PATH_BYTES + 1, "limit": PATH_BYTES}
    assert not os.path.lexists(os.path.dirname(path))


@pytest.mark.parametrize(
    "path", ["control.sock", "./x/control.sock", "", "\0abstract", "/a\0b", "/a/b/", "/a/..", "/a/."]
)
def test_a_path_that_is_not_absolute_or_names_no_file_is_refused(path: str) -> None:
    with pytest.raises(StartRefused) as refusal:
        check_path(path)
    assert refusal.value.detail == {"cause": "socket_path"}


def test_at_the_end_the_very_socket_is_removed(path: str) -> None:
    with bind(path):
        own = identity(path)
        assert own is not None
        assert unlink_own(path, own)
    assert not os.path.lexists(path)
    assert not unlink_own(path, own)  # twice is once


def test_a_socket_that_took_its_place_is_left_alone(path: str) -> None:
    with bind(path):
        own = identity(path)
        leave_dead(path + ".new")  # before the old one goes, or it might be given the same inode
        os.replace(path + ".new", path)
        assert not unlink_own(path, own)
    assert os.path.lexists(path)


def test_what_has_no_identity_is_never_removed(path: str) -> None:
    leave_dead(path)
    assert not unlink_own(path, None)
    assert os.path.lexists(path)


def test_a_file_is_never_removed_even_with_the_right_identity(path: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700)
    a_file(path)
    assert not unlink_own(path, identity(path))
    assert os.path.lexists(path)
