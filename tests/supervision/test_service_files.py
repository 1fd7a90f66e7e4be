"""Installing, removing and showing the service files, in a home directory of their own."""

import os
import plistlib
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from coordd.domain.errors import StartRefused
from coordd.supervision import service as service_files
from coordd.supervision.service import Answer, ServicePlatform, install, status, this_platform, uninstall
from coordd.supervision.units import Service, ServiceRefused


@pytest.fixture
def service(tmp_path: Path) -> Service:
    program = tmp_path / "coordd"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return Service(executable=str(program), socket="/run/user/1000/coordd/control.sock", state_dir="/s")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def silent(argv: Sequence[str]) -> Answer | None:
    return None


def saying(output: str, exit_code: int = 0) -> Callable[[Sequence[str]], Answer | None]:
    return lambda argv: Answer(exit_code, output)


ON = saying("ActiveState=active\nUnitFileState=enabled\n")
OFF = saying("ActiveState=inactive\nUnitFileState=disabled\n")


def linux(home: Path, run: Callable[[Sequence[str]], Answer | None] = silent, **environ: str) -> ServicePlatform:
    return ServicePlatform(system="linux", home=str(home), environ=environ, uid=1000, run=run)


def darwin(home: Path, run: Callable[[Sequence[str]], Answer | None] = silent) -> ServicePlatform:
    return ServicePlatform(system="darwin", home=str(home), environ={}, uid=501, run=run)


def units(home: Path) -> tuple[Path, Path]:
    directory = home / ".config" / "systemd" / "user"
    return directory / "coordd.socket", directory / "coordd.service"


def outcomes(report: Any) -> list[str]:
    return [outcome for _, outcome in report.files]


def states(home: Path, service: Service) -> list[str]:
    return [state for _, state in status(linux(home), service).files]


def test_install_writes_both_units_and_says_what_to_run(home: Path, service: Service) -> None:
    assert states(home, service) == ["absent", "absent"]
    report = install(linux(home), service)
    assert report.files == tuple((str(path), "written") for path in units(home))
    assert report.commands == (
        "systemctl --user daemon-reload",
        "systemctl --user enable --now coordd.socket coordd.service",
    )
    assert states(home, service) == ["current", "current"]
    assert sorted(os.listdir(units(home)[0].parent)) == ["coordd.service", "coordd.socket"]  # nothing is enabled


def test_systemd_accepts_what_was_installed(home: Path, service: Service, verify: Callable[..., str]) -> None:
    install(linux(home), service)
    assert verify(*units(home), home=home) == ""


def test_the_files_are_0644_whatever_the_umask(home: Path, service: Service) -> None:
    before = os.umask(0o077)
    try:
        install(linux(home), service)
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in units(home)] == [0o644, 0o644]


def test_a_second_install_touches_nothing(home: Path, service: Service) -> None:
    install(linux(home), service)
    before = [path.stat() for path in units(home)]
    assert outcomes(install(linux(home), service)) == ["unchanged", "unchanged"]
    assert [path.stat() for path in units(home)] == before


def test_what_is_outdated_is_replaced_and_the_daemon_is_to_be_restarted(
    home: Path, service: Service, tmp_path: Path
) -> None:
    install(linux(home), Service(executable=service.executable, socket=service.socket, state_dir="/old"))
    assert states(home, service) == ["current", "outdated"]
    report = install(linux(home), service)
    assert outcomes(report) == ["unchanged", "written"]
    assert report.commands[-1] == "systemctl --user try-restart coordd.service"
    assert states(home, service) == ["current", "current"]


def foreign(path: Path) -> None:
    path.write_text("[Service]\nExecStart=/bin/true\n")


def linked(path: Path) -> None:
    path.symlink_to("/dev/null")  # as `systemctl mask` does


def unreadable_text(path: Path) -> None:
    path.write_bytes(b"\xff\xfe" * 100)


def huge(path: Path) -> None:
    path.write_text("# x\n" * 100_000)


@pytest.mark.parametrize("put", [foreign, linked, unreadable_text, huge, Path.touch, os.mkfifo])
def test_a_file_of_somebody_else_is_refused_and_nothing_is_written(
    home: Path, service: Service, put: Callable[[Path], None]
) -> None:
    first, second = units(home)
    first.parent.mkdir(parents=True)
    put(second)
    before = os.lstat(second)
    with pytest.raises(ServiceRefused, match=r"coordd\.service was not written by this command"):
        install(linux(home), service)
    with pytest.raises(ServiceRefused):
        uninstall(linux(home))
    after = os.lstat(second)
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert not first.exists()
    assert states(home, service) == ["absent", "foreign"]


@pytest.mark.parametrize("put", [foreign, linked])
def test_force_replaces_it_and_not_what_a_link_points_to(
    home: Path, service: Service, put: Callable[[Path], None]
) -> None:
    _, path = units(home)
    path.parent.mkdir(parents=True)
    put(path)
    assert outcomes(install(linux(home), service, force=True)) == ["written", "written"]
    assert states(home, service) == ["current", "current"]
    assert not path.is_symlink()


def test_not_even_force_replaces_a_directory(home: Path, service: Service) -> None:
    _, path = units(home)
    path.mkdir(parents=True)
    with pytest.raises(ServiceRefused):
        install(linux(home), service, force=True)
    assert not [name for name in os.listdir(path.parent) if name.startswith(".")]  # nothing half-written stays


@pytest.mark.parametrize("edit", [lambda text: text + "Nice=5\n", lambda text: text.replace("=30", "=31")])
def test_a_file_that_was_edited_by_hand_is_refused(home: Path, service: Service, edit: Callable[[str], str]) -> None:
    install(linux(home), service)
    _, path = units(home)
    path.write_text(edit(path.read_text()))
    edited = path.read_text()
    assert states(home, service) == ["current", "edited"]
    with pytest.raises(ServiceRefused, match="edited by hand"):
        install(linux(home), service)
    with pytest.raises(ServiceRefused, match="edited by hand"):
        uninstall(linux(home))
    assert path.read_text() == edited
    assert outcomes(install(linux(home), service, force=True)) == ["unchanged", "written"]


@pytest.mark.parametrize("wrong", ["missing", "directory", "not executable"])
def test_a_program_that_cannot_run_is_refused(home: Path, tmp_path: Path, wrong: str) -> None:
    program = tmp_path / "program"
    if wrong == "directory":
        program.mkdir()
    elif wrong == "not executable":
        program.write_text("")
    with pytest.raises(ServiceRefused, match="not a program"):
        install(linux(home), Service(executable=str(program), socket="/run/x"))
    assert not home.exists()


def test_a_socket_path_that_is_too_long_is_refused(home: Path, service: Service) -> None:
    with pytest.raises(StartRefused, match="bytes"):
        install(linux(home), Service(executable=service.executable, socket="/" + "x" * 200))
    assert not home.exists()


def test_the_configuration_directory_is_where_xdg_says_if_that_is_absolute(
    home: Path, service: Service, tmp_path: Path
) -> None:
    install(linux(home, XDG_CONFIG_HOME=str(tmp_path / "config")), service)
    assert (tmp_path / "config" / "systemd" / "user" / "coordd.service").exists()
    install(linux(home, XDG_CONFIG_HOME="relative"), service)
    assert units(home)[1].exists()


def test_uninstall_removes_what_install_wrote_and_nothing_else(home: Path, service: Service) -> None:
    install(linux(home), service)
    (units(home)[0].parent / "other.service").touch()
    report = uninstall(linux(home, OFF))
    assert report.files == tuple((str(path), "removed") for path in units(home))
    assert report.commands == ("systemctl --user daemon-reload",)
    assert os.listdir(units(home)[0].parent) == ["other.service"]
    assert outcomes(uninstall(linux(home, OFF))) == ["absent", "absent"]


def test_uninstall_also_removes_what_an_older_release_wrote(home: Path, service: Service) -> None:
    install(linux(home), Service(executable=service.executable, socket="/old/socket"))
    assert outcomes(uninstall(linux(home))) == ["removed", "removed"]


def test_a_service_that_is_on_is_not_uninstalled_before_it_is_off(home: Path, service: Service) -> None:
    install(linux(home), service)
    with pytest.raises(ServiceRefused, match=r"systemctl --user disable --now coordd\.socket coordd\.service"):
        uninstall(linux(home, ON))
    assert all(path.exists() for path in units(home))
    report = uninstall(linux(home, ON), force=True)
    assert report.commands[0] == "systemctl --user disable --now coordd.socket coordd.service"


def test_where_the_manager_does_not_answer_uninstall_says_how_to_switch_it_off(home: Path, service: Service) -> None:
    install(linux(home), service)
    report = uninstall(linux(home))
    assert report.commands == (
        "systemctl --user disable --now coordd.socket coordd.service",
        "systemctl --user daemon-reload",
    )


@pytest.mark.parametrize(
    ("answer", "enabled", "active"),
    [
        (ON, "enabled", "active"),
        (OFF, "disabled", "inactive"),
        (saying("UnitFileState=enabled-runtime\nActiveState=failed\n"), "enabled-runtime", "failed"),
        (saying("ActiveState=inactive\nUnitFileState=\n"), "not-found", "inactive"),
        (silent, "unknown", "unknown"),
        (saying("", 1), "unknown", "unknown"),
        (saying("garbage\n\nActiveState=\x1b[2J\n"), "unknown", "unknown"),
    ],
)
def test_status_tells_what_the_manager_says(
    home: Path, service: Service, answer: Callable[[Sequence[str]], Answer | None], enabled: str, active: str
) -> None:
    said = status(linux(home, answer), service)
    assert (said.enabled, said.active) == (enabled, active)


def test_a_file_that_cannot_be_reached_is_an_answer_and_not_a_traceback(home: Path, service: Service) -> None:
    home.mkdir()
    (home / ".config").write_text("")
    with pytest.raises(ServiceRefused, match="cannot be read"):
        install(linux(home), service)
    with pytest.raises(ServiceRefused, match="cannot be read"):
        status(linux(home), service)


def test_on_macos_one_agent_is_installed_and_removed(home: Path, service: Service) -> None:
    path = home / "Library" / "LaunchAgents" / "coordd.daemon.plist"
    report = install(darwin(home), service)
    assert report.files == ((str(path), "written"),)
    assert report.commands == (f"launchctl bootstrap gui/501 {path}",)
    assert plistlib.loads(path.read_bytes())["ProgramArguments"][0] == service.executable
    assert status(darwin(home), service).files == ((str(path), "current"),)
    assert outcomes(install(darwin(home), service)) == ["unchanged"]
    path.write_text(path.read_text().replace("Interactive", "Background"))
    assert status(darwin(home), service).files == ((str(path), "edited"),)
    install(darwin(home), service, force=True)
    report = uninstall(darwin(home, saying("", 113)))
    assert report.files == ((str(path), "removed"),)
    assert report.commands == ()


def test_on_macos_a_path_with_blanks_can_be_pasted_into_a_shell(tmp_path: Path, service: Service) -> None:
    report = install(darwin(tmp_path / "a b"), service)
    assert report.commands[0].endswith("a b/Library/LaunchAgents/coordd.daemon.plist'")


def test_on_macos_an_agent_that_changed_is_loaded_anew(home: Path, service: Service) -> None:
    install(darwin(home), Service(executable=service.executable, socket="/old"))
    assert install(darwin(home), service).commands[0] == "launchctl bootout gui/501/coordd.daemon"


@pytest.mark.parametrize(
    ("answer", "enabled", "active"),
    [
        (saying("gui/501/coordd.daemon = {\n\tstate = running\n\tpid = 7\n}\n"), "enabled", "active"),
        (saying("gui/501/coordd.daemon = {\n\tstate = not running\n}\n"), "enabled", "inactive"),
        (saying("", 113), "not-loaded", "inactive"),
        (saying("", 1), "unknown", "unknown"),
        (silent, "unknown", "unknown"),
    ],
)
def test_status_tells_what_launchd_says(
    home: Path, service: Service, answer: Callable[[Sequence[str]], Answer | None], enabled: str, active: str
) -> None:
    said = status(darwin(home, answer), service)
    assert (said.enabled, said.active) == (enabled, active)


def test_elsewhere_there_is_no_service_manager_to_install_for(home: Path, service: Service) -> None:
    platform = ServicePlatform(system="freebsd14", home=str(home), environ={}, uid=1000, run=silent)
    with pytest.raises(ServiceRefused, match="freebsd14"):
        install(platform, service)


def test_a_command_that_is_missing_or_slow_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    run = this_platform().run
    assert run([sys.executable, "-c", "print('said'); raise SystemExit(3)"]) == Answer(3, "said\n")
    assert run(["/nonexistent/systemctl"]) is None
    monkeypatch.setattr(service_files, "ANSWER_S", 0.01)
    assert run(["sleep", "60"]) is None
