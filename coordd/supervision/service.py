"""Installs, removes and shows the service files of one user; `coordctl service` prints what is returned here.

Nothing is enabled, started or stopped: the report names the commands that do, for the user to run.
"""

import hashlib
import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from coordd.supervision import units
from coordd.supervision.endpoint_socket import check_path
from coordd.supervision.units import LABEL, Service, ServiceRefused

ANSWER_S: Final = 2.0  # for systemctl and launchctl
READ_BYTES: Final = 65_536  # no service file of ours is larger
UNITS: Final = ("coordd.socket", "coordd.service")
DISABLE: Final = f"systemctl --user disable --now {' '.join(UNITS)}"

MARK: Final = "Written by `coordctl service install`, checksum "  # then 16 hex digits over the other lines
MARK_END: Final = ". It leaves a file alone that was edited by hand."

# outdated: ours, and not what would be written now. edited: ours, and changed by hand. foreign: not ours.
FileState = Literal["absent", "current", "outdated", "edited", "foreign"]
Outcome = Literal["written", "unchanged", "removed", "absent"]


class Answer(NamedTuple):
    exit_code: int
    output: str


class ServicePlatform(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of the machine."""

    system: str  # as sys.platform: linux or darwin
    home: str
    environ: Mapping[str, str]
    uid: int
    run: Callable[[Sequence[str]], Answer | None]  # None: no such command, or no answer in time


class Report(msgspec.Struct, frozen=True):
    files: tuple[tuple[str, Outcome], ...]
    commands: tuple[str, ...]  # that the user may run now, in this order


class Status(msgspec.Struct, frozen=True):
    files: tuple[tuple[str, FileState], ...]
    enabled: str  # the manager's word, or unknown
    active: str


def this_platform() -> ServicePlatform:
    return ServicePlatform(
        system=sys.platform, home=os.path.expanduser("~"), environ=os.environ, uid=os.getuid(), run=_run
    )


def install(platform: ServicePlatform, service: Service, *, force: bool = False) -> Report:
    """Write the files that are missing or outdated; all are looked at before the first is written.

    Args: force: also replace files that this command did not write or that were edited since.
    Raises: ServiceRefused; StartRefused: the socket's path is too long.
    """
    check_path(service.socket)
    wanted = _wanted(platform, service)
    if not (os.path.isfile(service.executable) and os.access(service.executable, os.X_OK)):
        raise ServiceRefused(f"{service.executable} is not a program that can be run; name the installed coordd")
    states = {path: _look(path, text) for path, text in wanted.items()}
    if not force:
        _refuse_foreign(states)
    files: list[tuple[str, Outcome]] = []
    for path, text in wanted.items():
        if states[path] != "current":
            _write(path, text)
        files.append((path, "unchanged" if states[path] == "current" else "written"))
    replaced = any(state not in ("absent", "current") for state in states.values())
    return Report(tuple(files), _to_start(platform, next(iter(wanted)), replaced))


def uninstall(platform: ServicePlatform, *, force: bool = False) -> Report:
    """Remove the files that `install` wrote.

    Args: force: also those it did not write or that were edited since, and those of a service that is still enabled.
    Raises: ServiceRefused.
    """
    paths = _paths(platform)
    states = {path: _look(path, None) for path in paths}
    enabled, active = _ask(platform)
    is_known = "unknown" not in (enabled, active)
    is_on = enabled.startswith("enabled") or active in ("active", "activating", "reloading")
    if not force:
        _refuse_foreign(states)
        if is_on and any(state != "absent" for state in states.values()):
            raise ServiceRefused(
                f"coordd is still enabled or running; run `{_to_stop(platform)}` first, or use --force"
            )
    files: list[tuple[str, Outcome]] = []
    for path in paths:
        if states[path] != "absent":
            _remove(path)
        files.append((path, "absent" if states[path] == "absent" else "removed"))
    stop = (_to_stop(platform),) if is_on or not is_known else ()
    reload = ("systemctl --user daemon-reload",) if platform.system == "linux" else ()
    return Report(tuple(files), (*stop, *reload))


def status(platform: ServicePlatform, service: Service) -> Status:
    """Which files stand there, and what the manager says. Raises: ServiceRefused."""
    files = tuple((path, _look(path, text)) for path, text in _wanted(platform, service).items())
    return Status(files, *_ask(platform))


def _paths(platform: ServicePlatform) -> list[str]:
    if platform.system == "darwin":
        return [f"{platform.home}/Library/LaunchAgents/{LABEL}.plist"]
    if platform.system != "linux":
        raise ServiceRefused(f"coordd knows no service manager of {platform.system}; run `coordd serve` by your own")
    config = platform.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(config):  # the XDG specification: a relative one does not count
        config = f"{platform.home}/.config"
    return [f"{config}/systemd/user/{unit}" for unit in UNITS]


def _wanted(platform: ServicePlatform, service: Service) -> dict[str, str]:
    paths = _paths(platform)
    if platform.system == "darwin":
        return {paths[0]: _stamped(units.launchd_plist(service, home=platform.home))}
    return {paths[0]: _stamped(units.socket_unit(service)), paths[1]: _stamped(units.service_unit(service))}


def _stamped(text: str) -> str:
    mark = f"{MARK}{_checksum(text)}{MARK_END}"
    return units.with_comment(text, mark) if text.startswith("<?xml") else f"# {mark}\n{text}"


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _look(path: str, wanted: str | None) -> FileState:
    """How the file at `path` stands to what would be written, or, for an uninstall, to nothing."""
    text = _read(path)
    if text is None:
        return "absent"
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines[:2]):
        before, mark, rest = line.partition(MARK)
        if mark and before in ("# ", "<!-- "):
            if _checksum("".join(lines[:number] + lines[number + 1 :])) != rest[:16]:
                return "edited"
            return "current" if text == wanted else "outdated"
    return "foreign"


def _read(path: str) -> str | None:
    """The text of a plain file; empty, and so nobody's, for whatever else stands there; None where nothing does."""
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size > READ_BYTES:
            return ""
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read(READ_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ServiceRefused(f"{path} cannot be read: {error.strerror}; mend that first") from error


def _refuse_foreign(states: Mapping[str, FileState]) -> None:
    for path, state in states.items():
        if state == "foreign":
            raise ServiceRefused(f"{path} was not written by this command; move it away, or use --force")
        if state == "edited":
            raise ServiceRefused(f"{path} was edited by hand; move the edits to a drop-in file, or use --force")


def _write(path: str, text: str) -> None:
    """Whole or not at all, mode 0644: secrets have no place in it, and launchd refuses what others may write."""
    import tempfile

    directory = os.path.dirname(path)
    try:
        os.makedirs(directory, exist_ok=True)
        fd, scratch = tempfile.mkstemp(prefix=".coordd-", dir=directory)
        try:
            with open(fd, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fchmod(fd, 0o644)
                os.fsync(fd)
            os.replace(scratch, path)
        except BaseException:
            os.unlink(scratch)
            raise
    except OSError as error:
        raise ServiceRefused(f"{path} cannot be written: {error.strerror}; mend that first") from error


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError as error:
        raise ServiceRefused(f"{path} cannot be removed: {error.strerror}; mend that first") from error


def _to_start(platform: ServicePlatform, first: str, replaced: bool) -> tuple[str, ...]:
    if platform.system == "darwin":
        import shlex

        again = (_to_stop(platform),) if replaced else ()
        return (*again, f"launchctl bootstrap gui/{platform.uid} {shlex.quote(first)}")
    again = ("systemctl --user try-restart coordd.service",) if replaced else ()
    return ("systemctl --user daemon-reload", f"systemctl --user enable --now {' '.join(UNITS)}", *again)


def _to_stop(platform: ServicePlatform) -> str:
    return f"launchctl bootout gui/{platform.uid}/{LABEL}" if platform.system == "darwin" else DISABLE


def _ask(platform: ServicePlatform) -> tuple[str, str]:
    """Whether the service is enabled and whether it runs, in the manager's words."""
    if platform.system == "darwin":
        return _from_launchctl(platform.run(["launchctl", "print", f"gui/{platform.uid}/{LABEL}"]))
    return _from_systemctl(
        platform.run(["systemctl", "--user", "show", "--property=UnitFileState,ActiveState", "coordd.service"])
    )


def _from_systemctl(answer: Answer | None) -> tuple[str, str]:
    said = dict.fromkeys(("UnitFileState", "ActiveState"), "unknown")
    if answer is not None and answer.exit_code == 0:
        for line in answer.output.splitlines():
            name, _, value = line.partition("=")
            if name in said and value.replace("-", "").isalpha():
                said[name] = value
            elif name == "UnitFileState" and not value:  # the manager has seen no such file
                said[name] = "not-found"
    return said["UnitFileState"], said["ActiveState"]


def _from_launchctl(answer: Answer | None) -> tuple[str, str]:
    """`launchctl print` fails with 113 when nothing of that name is loaded. Not run by the project's own tests."""
    if answer is None or answer.exit_code not in (0, 113):
        return "unknown", "unknown"
    if answer.exit_code == 113:
        return "not-loaded", "inactive"
    runs = any(line.strip() == "state = running" for line in answer.output.splitlines())
    return "enabled", "active" if runs else "inactive"


def _run(argv: Sequence[str]) -> Answer | None:
    import subprocess

    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ANSWER_S,
            text=True,
            errors="replace",
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Answer(done.returncode, done.stdout)
