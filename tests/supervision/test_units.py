"""The service files, read back by systemd's own parser and by plistlib."""

import os
import plistlib
import re
import xml.etree.ElementTree as ET  # our own output
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordd.supervision.units import (
    LABEL,
    Service,
    ServiceRefused,
    launchd_plist,
    quoted,
    service_unit,
    shipped,
    socket_unit,
    with_comment,
)

Verify = Callable[..., str]
ROOT = Path(__file__).parents[2]

# What a home directory may be called.
NAMES = [
    "plain",
    "we ird",
    "per%hcent %% %",
    "do$HOME ${X} $$ $",
    "äö€ 😀",
    "semi ; colon;",
    "#hash",
    "-dash",
    "a=b",
    "@x",
]
# What only arguments may hold.
ARGUMENTS = [*NAMES, "quo\"te 'single' \"", "back\\slash \\n \\x20 \\", '\\"', "'", "%%h\\"]
path_text = st.text(
    alphabet=st.characters(min_codepoint=32, exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"),
    max_size=30,
)


def a_service(**changes: Any) -> Service:
    fields = {"executable": "/opt/coordd/bin/coordd", "socket": "/run/user/1000/coordd/control.sock", **changes}
    return Service(**fields)


def lines(unit: str, name: str) -> list[str]:
    return [line.partition("=")[2] for line in unit.splitlines() if line.startswith(f"{name}=")]


def installed(directory: Path) -> str:
    """A program at a path, as `ExecStart` has to exist when a unit is verified."""
    directory.mkdir(parents=True)
    program = directory / "coordd"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return str(program)


def written(directory: Path, service: Service) -> tuple[Path, Path]:
    socket, daemon = directory / "coordd.socket", directory / "coordd.service"
    socket.write_text(socket_unit(service))
    daemon.write_text(service_unit(service))
    return socket, daemon


def test_the_files_in_the_repository_are_what_is_rendered() -> None:
    for path, text in shipped().items():
        assert (ROOT / path).read_text() == text, f"write units.shipped()[{path!r}] to {path}"


def test_systemd_accepts_the_files_in_the_repository(verify: Verify, tmp_path: Path) -> None:
    installed(tmp_path / ".local" / "bin")
    assert verify(ROOT / "systemd/coordd.socket", ROOT / "systemd/coordd.service", home=tmp_path) == ""


def test_systemd_would_have_complained(verify: Verify, tmp_path: Path) -> None:
    socket, daemon = written(tmp_path, a_service(executable=installed(tmp_path / "bin")))
    daemon.write_text(daemon.read_text().replace("KillMode=process", "KillMood=process"))
    assert "KillMood" in verify(socket, daemon)
    socket, daemon = written(tmp_path, a_service(executable=str(tmp_path / "missing")))
    assert "not executable" in verify(socket, daemon)


@pytest.mark.parametrize("name", NAMES)
def test_systemd_finds_the_program_whatever_its_path_is_called(verify: Verify, tmp_path: Path, name: str) -> None:
    program = installed(tmp_path / name)
    service = a_service(
        executable=program, config=f"/{name}/c.toml", state_dir=f"/{name}", socket=f"/run/{name}/control.sock"
    )
    assert verify(*written(tmp_path, service)) == ""


@pytest.mark.parametrize("name", ["quo'te", 'quo"te', "back\\slash"])
def test_a_program_that_systemd_would_not_run_is_refused(verify: Verify, tmp_path: Path, name: str) -> None:
    program = installed(tmp_path / name)
    with pytest.raises(ServiceRefused, match="elsewhere"):
        service_unit(a_service(executable=program))
    (tmp_path / "other.service").write_text(f"[Service]\nExecStart={quoted(program)}\n")
    assert "special characters" in verify(tmp_path / "other.service")  # so it would not indeed


def words_as_systemd_reads_them(verify: Verify, directory: Path, words: list[str]) -> list[str]:
    """systemd repeats a word of Environment= that has no `=` in its complaint; it splits commands the same way."""
    unit = directory / "echo.service"
    settings = "".join(f"Environment={word}\n" for word in words)
    unit.write_text(f"[Service]\nExecStart=/bin/true\n{settings}")
    return re.findall(r"Invalid environment assignment, ignoring: (.*)\n", verify(unit))


def test_systemd_reads_every_argument_as_it_was_meant(verify: Verify, tmp_path: Path) -> None:
    words = [f"/{name.replace('=', '')}" for name in ARGUMENTS]
    assert words_as_systemd_reads_them(verify, tmp_path, [quoted(word) for word in words]) == words


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(path_text.map(lambda text: "/" + text.replace("=", "")), min_size=1, max_size=20))
def test_systemd_reads_any_path_as_it_was_meant(verify: Verify, tmp_path: Path, texts: list[str]) -> None:
    assert words_as_systemd_reads_them(verify, tmp_path, [quoted(text) for text in texts]) == texts


def test_the_command_names_what_it_was_given_and_nothing_is_replaced_in_it() -> None:
    service = a_service(executable="/a b/coordd", config="/c$HOME", state_dir="/s%h")
    (command,) = lines(service_unit(service), "ExecStart")
    assert command == (
        ':"/a b/coordd" serve --config "/c$HOME" --state-dir /s%%h --socket /run/user/1000/coordd/control.sock'
    )


def test_what_was_not_given_is_left_to_coordds_defaults() -> None:
    (command,) = lines(service_unit(a_service()), "ExecStart")
    assert command == ":/opt/coordd/bin/coordd serve --socket /run/user/1000/coordd/control.sock"


def test_the_socket_is_listened_at_without_quotes_and_with_doubled_percents() -> None:
    unit = socket_unit(a_service(socket='/run/a b/"50%h".sock'))
    assert lines(unit, "ListenStream") == ['/run/a b/"50%%h".sock']
    assert lines(unit, "FileDescriptorName") == ["control"]


@pytest.mark.parametrize("end", [" ", "\\"])
def test_a_socket_path_that_systemd_would_change_is_refused(end: str) -> None:
    with pytest.raises(ServiceRefused):
        socket_unit(a_service(socket="/run/control.sock" + end))


HOSTILE = [
    "relative",
    "",
    "/a\nExecStartPre=/bin/evil",
    "/a\r",
    "/a\0",
    "/a\x1b",
    "/a\x85b",
    "/a\x7f",
    "/a\udcff",
    "/\uffff",
]


@pytest.mark.parametrize("path", HOSTILE)
@pytest.mark.parametrize("field", ["executable", "config", "state_dir", "socket"])
def test_no_path_adds_a_line_or_breaks_the_file(path: str, field: str) -> None:
    service = a_service(**{field: path})
    for render in (service_unit, lambda service: launchd_plist(service, home="/Users/a")):
        with pytest.raises(ServiceRefused) as refusal:
            render(service)
        assert refusal.value.code == "service_refused"
    if field == "socket":
        with pytest.raises(ServiceRefused):
            socket_unit(service)


def test_a_restart_ends_the_daemon_alone() -> None:
    unit = service_unit(a_service())
    assert lines(unit, "KillMode") == ["process"]
    assert lines(unit, "OOMPolicy") == ["continue"]
    assert lines(unit, "Type") == ["notify"]


def test_nothing_that_takes_rights_from_workers_is_set() -> None:
    keys = {line.partition("=")[0] for line in service_unit(a_service()).splitlines() if not line.startswith("#")}
    harmful = re.compile(
        r"NoNewPrivileges|Protect|Private|Restrict(?!art)|SystemCall|Lock|Memory|ReadOnly|Inaccess|Capab"
    )
    assert not [key for key in keys if harmful.match(key)]
    assert not keys & {"StateDirectory", "RuntimeDirectory"}


@pytest.mark.parametrize(("drain_s", "expected"), [(10.0, 30), (0.0, 20), (600.0, 620)])
def test_the_manager_waits_longer_than_the_drain(drain_s: float, expected: int) -> None:
    service = a_service(drain_s=drain_s)
    assert lines(service_unit(service), "TimeoutStopSec") == [str(expected)]
    assert plistlib.loads(launchd_plist(service, home="/Users/a").encode())["ExitTimeOut"] == expected


def test_systemd_accepts_the_stricter_drop_in_of_the_docs(verify: Verify, tmp_path: Path) -> None:
    found = re.search(r"```ini\n(# pull-only\.conf\n.*?)```", (ROOT / "docs/service.md").read_text(), re.DOTALL)
    assert found is not None
    units = written(tmp_path, a_service(executable=installed(tmp_path / "bin")))
    (tmp_path / "coordd.service.d").mkdir()
    drop_in = tmp_path / "coordd.service.d" / "pull-only.conf"
    drop_in.write_text(found[1])
    assert verify(*units) == ""
    drop_in.write_text(found[1] + "NoSuchKey=1\n")
    assert "NoSuchKey" in verify(*units)  # it does read it


@given(config=path_text, state=path_text, home=path_text)
def test_a_property_list_reads_back_whatever_the_paths(config: str, state: str, home: str) -> None:
    service = a_service(config="/" + config, state_dir="/" + state)
    text = with_comment(launchd_plist(service, home="/" + home), "a comment")
    said = plistlib.loads(text.encode())
    assert said["ProgramArguments"] == [
        "/opt/coordd/bin/coordd", "serve", "--config", "/" + config, "--state-dir", "/" + state,
        "--socket", "/run/user/1000/coordd/control.sock",
    ]  # fmt: skip
    assert said["StandardErrorPath"] == f"/{state}/coordd.stderr"
    assert said["EnvironmentVariables"]["COORDD_LOG_FILE"] == f"/{state}/coordd.log"
    assert said["EnvironmentVariables"]["PATH"].split(":")[-4:] == ["/usr/bin", "/bin", "/usr/sbin", "/sbin"]


def test_a_property_list_says_how_launchd_treats_the_daemon() -> None:
    said = plistlib.loads(launchd_plist(a_service(), home="/Users/a").encode())
    del said["ProgramArguments"], said["EnvironmentVariables"], said["StandardOutPath"]
    assert said == {
        "Label": LABEL,
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,
        "ExitTimeOut": 30,
        "AbandonProcessGroup": True,
        "ProcessType": "Interactive",
        "Umask": 0o077,
        "SoftResourceLimits": {"NumberOfFiles": 8192},
        "StandardErrorPath": "/Users/a/Library/Application Support/coordd/coordd.stderr",
    }


def test_the_shipped_property_list_is_xml_and_its_script_starts_coordd(tmp_path: Path) -> None:
    import subprocess

    text = shipped()["launchd/coordd.plist"]
    assert ET.fromstring(text).tag == "plist"  # noqa: S314 - our own
    program = Path(installed(tmp_path / ".local" / "bin"))
    program.write_text('#!/bin/sh\necho "$@" "$COORDD_LOG_FILE" "$PATH"\necho fatal >&2\n')
    said = plistlib.loads(text.encode())
    environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    umask = {"umask": said["Umask"]}
    done = subprocess.run(said["ProgramArguments"], env=environ, capture_output=True, check=True, timeout=60, **umask)
    state = tmp_path / "Library" / "Application Support" / "coordd"
    assert done.stdout.decode().startswith(f"serve {state}/coordd.log {tmp_path}/.local/bin:")
    assert (state / "coordd.stderr").read_text() == "fatal\n"
    assert os.stat(state).st_mode & 0o777 == 0o700
