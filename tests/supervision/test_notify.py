"""The notifier against a real datagram socket, which is all that systemd is to it."""

import logging
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from coordd.supervision import notify
from coordd.supervision.notify import Notifier, run_watchdog


class Manager:
    def __init__(self, address: str | bytes) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(address)
        self.sock.setblocking(False)

    def heard(self) -> list[str]:
        messages = []
        while True:
            try:
                messages.append(self.sock.recv(65_536).decode())
            except BlockingIOError:
                return messages


@pytest.fixture
def address(run_dir: Path) -> str:
    return str(run_dir / "notify")


@pytest.fixture
def manager(address: str) -> Iterator[Manager]:
    manager = Manager(address)
    yield manager
    manager.sock.close()


def test_every_step_of_the_daemons_life_is_told(manager: Manager, address: str) -> None:
    notifier = Notifier(address)
    notifier.ready("3 repositories")
    notifier.status("2 leases")
    notifier.watchdog()
    notifier.stopping()
    assert manager.heard() == ["READY=1\nSTATUS=3 repositories", "STATUS=2 leases", "WATCHDOG=1", "STOPPING=1"]


def test_a_reload_carries_the_monotonic_clock_in_microseconds(manager: Manager, address: str) -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    Notifier(address).reloading()
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    (message,) = manager.heard()
    first, second = message.split("\n")
    assert first == "RELOADING=1"
    assert before <= int(second.removeprefix("MONOTONIC_USEC=")) <= after


@pytest.mark.skipif(not os.path.exists("/proc/self"), reason="the abstract name space is Linux's")
def test_an_at_sign_names_a_socket_of_the_abstract_name_space(run_dir: Path) -> None:
    name = f"coordd{run_dir}"
    manager = Manager(b"\0" + name.encode())
    Notifier("@" + name).watchdog()
    assert manager.heard() == ["WATCHDOG=1"]
    manager.sock.close()


def test_without_a_manager_nothing_happens(caplog: pytest.LogCaptureFixture) -> None:
    notifier = Notifier.from_environment({"WATCHDOG_USEC": "30000000"})
    notifier.ready()
    notifier.stopping()
    assert notifier.watchdog_s is None
    assert not caplog.records


def test_a_manager_that_is_gone_is_logged_and_never_raised(address: str, caplog: pytest.LogCaptureFixture) -> None:
    Notifier(address).ready()
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "the service manager could not be told READY"
    ]


def test_an_address_longer_than_a_socket_can_have_is_logged_and_never_raised(caplog: pytest.LogCaptureFixture) -> None:
    Notifier("/" + "x" * 300).ready()
    assert "could not be told READY" in caplog.text


def test_a_manager_that_does_not_read_does_not_hold_up_the_daemon(
    manager: Manager, address: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "SEND_S", 0.001)
    notifier = Notifier(address)
    for _ in range(100_000):  # until the queue is full, however long it is here
        notifier.watchdog()
        if caplog.records:
            break
    assert "could not be told WATCHDOG" in caplog.text


@pytest.mark.parametrize("address", ["vsock:2:1234", "relative/path"])
def test_an_address_of_another_kind_is_logged_and_left_alone(address: str, caplog: pytest.LogCaptureFixture) -> None:
    notifier = Notifier(address, watchdog_s=1)
    notifier.ready()
    assert notifier.watchdog_s is None
    assert "not supported" in caplog.text


@given(st.text(max_size=300))
def test_no_status_text_begins_another_message(text: str) -> None:
    line = notify._status(text)
    assert line.startswith("STATUS=")
    assert line.isprintable()
    assert len(line) <= len("STATUS=") + notify.STATUS_CHARACTERS


def test_children_do_not_inherit_the_managers_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("NOTIFY_SOCKET", "/nowhere"), ("WATCHDOG_USEC", "10"), ("WATCHDOG_PID", "1")):
        monkeypatch.setenv(name, value)
    Notifier.from_environment()
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & os.environ.keys()


@pytest.mark.parametrize(
    ("limit_us", "pid", "expected_s"),
    [
        ("30000000", None, 15.0),
        ("30000000", str(os.getpid()), 15.0),
        ("1", None, 0.0000005),
        ("30000000", "1", None),  # meant for another process
        (None, None, None),
        ("", None, None),
        ("0", None, None),
        ("-5", None, None),
        ("1e9", None, None),
        ("١٢", None, None),  # digits to Python, not to the manager
        ("9" * 5000, None, None),
    ],
)
def test_the_watchdog_is_due_at_half_the_managers_limit(
    limit_us: str | None, pid: str | None, expected_s: float | None
) -> None:
    environ = {"NOTIFY_SOCKET": "/nowhere"}
    environ |= {} if limit_us is None else {"WATCHDOG_USEC": limit_us}
    environ |= {} if pid is None else {"WATCHDOG_PID": pid}
    assert Notifier.from_environment(environ).watchdog_s == expected_s


async def test_a_healthy_daemon_gives_a_sign_at_each_interval(
    manager: Manager, address: str, autojump_clock: object, nursery: trio.Nursery
) -> None:
    async def healthy() -> bool:
        return True

    nursery.start_soon(run_watchdog, Notifier(address, watchdog_s=15), healthy)
    await trio.sleep(31)
    assert manager.heard() == ["WATCHDOG=1"] * 3  # at 0, 15 and 30


async def test_an_unhealthy_daemon_gives_no_sign_until_it_is_well_again(
    manager: Manager,
    address: str,
    autojump_clock: object,
    nursery: trio.Nursery,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    is_well = False

    async def healthy() -> bool:
        return is_well

    nursery.start_soon(run_watchdog, Notifier(address, watchdog_s=15), healthy)
    await trio.sleep(100)
    assert manager.heard() == []
    is_well = True
    await trio.sleep(15)
    assert manager.heard() == ["WATCHDOG=1"]
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]  # once each, not at every look


async def test_a_check_that_raises_is_no_sign_of_life_and_its_text_is_not_logged(
    manager: Manager,
    address: str,
    autojump_clock: object,
    nursery: trio.Nursery,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def healthy() -> bool:
        raise ValueError("the text of a task")

    nursery.start_soon(run_watchdog, Notifier(address, watchdog_s=15), healthy)
    await trio.sleep(40)
    assert manager.heard() == []
    assert "ValueError" in caplog.text
    assert "the text of a task" not in caplog.text


async def test_a_check_that_hangs_gives_no_sign(
    manager: Manager, address: str, autojump_clock: object, nursery: trio.Nursery
) -> None:
    async def healthy() -> bool:
        await trio.sleep_forever()
        return True

    nursery.start_soon(run_watchdog, Notifier(address, watchdog_s=15), healthy)
    await trio.sleep(100)
    assert manager.heard() == []


async def test_a_slow_check_does_not_stretch_the_interval(
    manager: Manager, address: str, autojump_clock: object, nursery: trio.Nursery
) -> None:
    async def healthy() -> bool:
        await trio.sleep(10)
        return True

    nursery.start_soon(run_watchdog, Notifier(address, watchdog_s=15), healthy)
    await trio.sleep(71)
    assert len(manager.heard()) == 5  # at 10, 25, 40, 55 and 70


async def test_a_manager_that_wants_no_sign_gets_none(manager: Manager, address: str) -> None:
    async def healthy() -> bool:
        return True

    await run_watchdog(Notifier(address), healthy)
    assert manager.heard() == []
