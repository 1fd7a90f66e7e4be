"""Sockets that are handed over by a parent, in real child processes."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordd.domain.errors import StartRefused
from coordd.supervision.activation import activated_socket, choose

# Puts what it inherited to 3, 4, …, says that it is meant, and tells what became of it.
CHILD = """
import fcntl, json, os, sys
from coordd.domain.errors import StartRefused
from coordd.supervision.activation import activated_socket
given, environ = json.loads(sys.argv[1]), json.loads(sys.argv[2])
high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 200) for fd in given]
for index, fd in enumerate(high):
    os.dup2(fd, 3 + index)
os.environ.update({name: value.replace("SELF", str(os.getpid())) for name, value in environ.items()})
said = {}
try:
    sock = activated_socket()
except StartRefused as refusal:
    said = {"code": refusal.code, **refusal.detail, "message": str(refusal)}
else:
    if sock is not None:
        said = {
            "path": sock.getsockname(), "inheritable": sock.get_inheritable(), "blocking": sock.getblocking(),
            "fd": sock.fileno(),
        }
        sock.setblocking(True)
        if "ANSWER" in os.environ:
            client = sock.accept()[0]
            client.sendall(b"served")
said["variables"] = sorted(name for name in os.environ if name.startswith("LISTEN_"))
def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
said["open"] = [fd for fd in range(3, 3 + len(given)) if is_open(fd)]
print(json.dumps(said))
"""


def given(*sockets: Any, **environ: str) -> dict[str, Any]:
    """What a child says of the sockets that it is given."""
    fds = [sock.fileno() for sock in sockets]
    environ = {"LISTEN_PID": "SELF", "LISTEN_FDS": str(len(fds)), **environ}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(fds), json.dumps(environ)],
        pass_fds=fds,
        capture_output=True,
        check=True,
        timeout=60,
    )
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.fixture
def listener(run_dir: Path) -> Iterator[socket.socket]:
    with listening(run_dir / "control.sock") as sock:
        yield sock


@contextlib.contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.bind(str(path))
        sock.listen()
        yield sock


def test_the_socket_that_was_handed_over_is_taken(listener: socket.socket) -> None:
    said = given(listener)
    assert said == {
        "path": listener.getsockname(),
        "inheritable": False,
        "blocking": False,
        "fd": 3,
        "variables": [],
        "open": [3],
    }


def test_a_client_that_came_before_the_daemon_is_served(listener: socket.socket) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(listener.getsockname())
        given(listener, ANSWER="1")
        assert client.recv(100) == b"served"


def test_a_socket_meant_for_another_process_is_left_alone_and_the_variables_go(listener: socket.socket) -> None:
    said = given(listener, LISTEN_PID="1")
    assert said == {"variables": [], "open": [3]}


@pytest.mark.parametrize(
    "environ", [{}, {"LISTEN_FDS": "1"}, {"LISTEN_PID": "SELF"}, {"LISTEN_PID": "SELF", "LISTEN_FDS": "0"}]
)
def test_without_a_socket_there_is_none(environ: dict[str, str]) -> None:
    environ = {name: value.replace("SELF", str(os.getpid())) for name, value in environ.items()}
    assert activated_socket(environ) is None
    assert not environ


def test_of_several_sockets_the_one_named_control_is_taken_and_the_others_are_closed(
    listener: socket.socket, run_dir: Path
) -> None:
    with listening(run_dir / "other") as other:
        said = given(other, listener, LISTEN_FDNAMES="web:control")
    assert (said["path"], said["fd"], said["open"]) == (listener.getsockname(), 4, [4])


def test_a_single_socket_may_have_any_name(listener: socket.socket) -> None:
    assert given(listener, LISTEN_FDNAMES="coordd.socket")["path"] == listener.getsockname()


@pytest.mark.parametrize("names", ["", "a:b", "control:control", "a:b:control"])
def test_several_sockets_of_which_not_one_is_named_control_are_refused(names: str) -> None:
    with pytest.raises(StartRefused) as refusal:
        choose(2, names)
    assert refusal.value.detail == {"cause": "activation"}


def refused(said: dict[str, Any], what: str) -> None:
    assert (said["code"], said["cause"]) == ("start_refused", "activation")
    assert what in said["message"]
    assert said["variables"] == []


def test_a_datagram_socket_is_refused(run_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(run_dir / "dgram"))
        refused(given(sock), "not a Unix stream socket")


def test_a_tcp_socket_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        refused(given(sock), "not a Unix stream socket")


def test_a_socket_that_does_not_listen_is_refused(run_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.bind(str(run_dir / "silent"))
        refused(given(sock), "does not listen")


def test_a_file_is_refused(run_dir: Path) -> None:
    with open(run_dir / "file", "w") as file:
        refused(given(file), "not a socket")


def test_a_descriptor_that_is_announced_and_not_there_is_refused(listener: socket.socket) -> None:
    refused(given(listener, LISTEN_FDS="2", LISTEN_FDNAMES="control:x"), "not open")


@pytest.mark.parametrize("count", ["x", "-1", "1.5", "99999999999", "²"])
def test_a_count_that_is_none_is_refused(listener: socket.socket, count: str) -> None:
    refused(given(listener, LISTEN_FDS=count), "not a number")


@pytest.mark.skipif(shutil.which("systemd-socket-activate") is None, reason="systemd-socket-activate is not installed")
def test_systemds_own_tool_hands_the_socket_over(run_dir: Path) -> None:
    path = str(run_dir / "control.sock")
    child = (
        "import os\n"
        "from coordd.supervision.activation import activated_socket\n"
        "sock = activated_socket()\n"
        "sock.setblocking(True)\n"
        "sock.accept()[0].sendall(f'{sock.getsockname()} {\"LISTEN_FDS\" in os.environ}'.encode())\n"
    )
    paths = [f"--setenv=PYTHONPATH={os.environ['PYTHONPATH']}"] if "PYTHONPATH" in os.environ else []
    activate = ["systemd-socket-activate", f"--listen={path}", "--fdname=control", *paths, sys.executable, "-c", child]
    with subprocess.Popen(activate, stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            assert b"Listening on" in process.stderr.readline()
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.settimeout(60)
                client.connect(path)
                assert client.recv(1000).decode() == f"{path} False"
        finally:
            process.kill()
