"""The service files for systemd's user manager and for launchd, as text. Source: docs/service.md

Nothing here looks at the machine. Everything holds for systemd 252 and later.
"""

import re
from typing import Final

import msgspec

from coordd.domain.errors import CoordError

LABEL: Final = "coordd.daemon"  # launchd's name for the service
WATCHDOG_S: Final = 30
MARGIN_S: Final = 20  # between the end of the drain and SIGKILL
OPEN_FILES: Final = 8192  # connections and watched processes; the usual 1024 is less than control.max_connections

_PLAIN: Final = re.compile(r"[A-Za-z0-9_./@%+=:,~-]+")


class ServiceRefused(CoordError):
    """The service files cannot be written, or removed, as things are; the message says what to do."""

    code = "service_refused"


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """What the service runs. Paths are absolute; None leaves the choice to coordd's own defaults."""

    executable: str
    socket: str
    config: str | None = None
    state_dir: str | None = None
    drain_s: float = 10.0  # daemon.drain_s of the configuration
    specifiers: bool = False  # the paths hold systemd's %h and %t: only in the files that are shipped


def socket_unit(service: Service) -> str:
    """coordd.socket. Raises: ServiceRefused: its path cannot be written into one."""
    path = _checked(service.socket, service.specifiers)
    if path.endswith(("\\", " ")):
        raise ServiceRefused(f"systemd cannot listen at {path}: it ends in a blank or a backslash; see --socket")
    return f"""\
[Unit]
Description=Control socket of coordd

[Socket]
ListenStream={path if service.specifiers else path.replace("%", "%%")}
FileDescriptorName=control
# For this user alone. coordd looks at the uid of each client besides.
SocketMode=0600
DirectoryMode=0700

[Install]
WantedBy=sockets.target
"""


def service_unit(service: Service) -> str:
    """coordd.service. Raises: ServiceRefused: a path cannot be written into one."""
    executable = _checked(service.executable, service.specifiers)
    if set(executable) & set("\"'\\"):
        raise ServiceRefused(
            f"systemd runs no program with quotes or backslashes in its path ({executable}); install coordd elsewhere"
        )
    # `:` keeps systemd from replacing $NAME, in the path and in the arguments.
    command = " ".join(
        [
            f":{quoted(executable, service.specifiers)}",
            *(quoted(word, service.specifiers) for word in _arguments(service)),
        ]
    )
    return f"""\
[Unit]
Description=coordd, the referee for coding agents
# systemd holds the socket: clients that come while coordd restarts wait in its queue and are not refused.
Wants=coordd.socket
After=coordd.socket
# A daemon that cannot start is left alone after five tries in a minute; `systemctl --user reset-failed` allows more.
StartLimitIntervalSec=60
StartLimitBurst=5

[Service]
Type=notify
NotifyAccess=main
ExecStart={command}
ExecReload=kill -HUP $MAINPID
WatchdogSec={WATCHDOG_S}
Restart=on-failure
RestartSec=2
# A new release may copy and migrate the store before it is ready.
TimeoutStartSec=300
# The drain and a margin.
TimeoutStopSec={_stop_s(service)}
# Only the daemon is ended. Workers that it started run on through its restart, and it finds them again by process
# number and start; `control-group` and `mixed` would kill them with it.
KillMode=process
# A worker that uses up the memory is killed alone; by default systemd would then stop the daemon too.
OOMPolicy=continue
UMask=0077
# The hard limit is what it usually is, so that workers lose nothing.
LimitNOFILE={OPEN_FILES}:524288
# Workers inherit whatever is set here, and may be any program the user runs. Hence left out: NoNewPrivileges, and
# every setting that implies it in a user manager (LockPersonality, MemoryDenyWriteExecute, Restrict*, SystemCall*),
# because it breaks sudo, rootless containers and FUSE; ProtectSystem, ProtectHome, Private* and the like, because
# they need a user name space and hide repositories, /tmp and sockets. StateDirectory means ~/.config before
# systemd 254, and RuntimeDirectory would remove the socket at each stop: coordd makes its directories itself, 0700.
# docs/service.md has a stricter drop-in for those whose daemon starts no workers.

[Install]
WantedBy=default.target
"""


def launchd_plist(service: Service, *, home: str) -> str:
    """The property list of a launchd agent. Raises: ServiceRefused: a path cannot be written into one.

    launchd keeps no log and has no watchdog: coordd writes a capped file in the state directory, and what it says
    before that is set up goes to coordd.stderr beside it.
    """
    state_dir = _checked(service.state_dir or default_launchd_state_dir(home))
    program = [_checked(service.executable), *_arguments(service)]
    return _plist(
        program,
        stop_s=_stop_s(service),
        environment={
            # launchd's own is /usr/bin:/bin:/usr/sbin:/sbin, where no worker finds its tools.
            "PATH": f"{_checked(home)}/.local/bin:/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "COORDD_LOG_FILE": log_file(state_dir),
        },
        output=stderr_file(state_dir),
    )


def log_file(state_dir: str) -> str:
    return f"{state_dir}/coordd.log"


def stderr_file(state_dir: str) -> str:
    """What launchd appends the daemon's stderr to."""
    return f"{state_dir}/coordd.stderr"


def default_launchd_state_dir(home: str) -> str:
    return f"{home}/Library/Application Support/coordd"


def shipped() -> dict[str, str]:
    """The files in the repository, by path: for those who install by hand, with coordd in ~/.local/bin."""
    generic = Service(executable="%h/.local/bin/coordd", socket="%t/coordd/control.sock", specifiers=True)
    words = "expects coordd in ~/.local/bin; `coordctl service install` writes one with your own paths"
    return {
        "systemd/coordd.socket": f"# The generic unit.\n{socket_unit(generic)}",
        "systemd/coordd.service": f"# The generic unit: {words}.\n{service_unit(generic)}",
        "launchd/coordd.plist": with_comment(_shipped_plist(), f"The generic agent: {words}."),
    }


def with_comment(plist: str, text: str) -> str:
    """A property list with a comment as its second line, the first where XML admits one."""
    declaration, _, rest = plist.partition("\n")
    return f"{declaration}\n<!-- {text} -->\n{rest}"


def quoted(word: str, specifiers: bool = False) -> str:
    """`word` as one word of a systemd setting that is split into words; `$` is left to the `:` of the command."""
    if not specifiers:
        word = word.replace("%", "%%")
    if _PLAIN.fullmatch(word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _arguments(service: Service) -> list[str]:
    words = ["serve"]
    for flag, path in (("--config", service.config), ("--state-dir", service.state_dir)):
        if path is not None:
            words += [flag, _checked(path, service.specifiers)]
    if not service.specifiers:
        words += ["--socket", _checked(service.socket)]
    return words


def _checked(path: str, specifiers: bool = False) -> str:
    """The path, if it is absolute and made of characters that both kinds of file can hold."""
    if not path.startswith(("/", "%h/", "%t/") if specifiers else "/"):
        raise ServiceRefused("the paths of a service have to be absolute; name them so")
    # C0 and C1 controls end lines or are illegal in XML; surrogates stand for bytes that are not UTF-8.
    if any(ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000 or ord(c) in (0xFFFE, 0xFFFF) for c in path):
        raise ServiceRefused("a path holds control characters or is not UTF-8; service files cannot name it")
    return path


def _stop_s(service: Service) -> int:
    return int(service.drain_s) + MARGIN_S


def _shipped_plist() -> str:
    # launchd replaces neither ~ nor $HOME, a shell does. `exec`: the process that launchd watches becomes coordd.
    script = (
        'state="$HOME/Library/Application Support/coordd"; mkdir -p "$state" || exit 1; '
        'export PATH="$HOME/.local/bin:/opt/homebrew/bin:/usr/local/bin:$PATH" COORDD_LOG_FILE="$state/coordd.log"; '
        'exec "$HOME/.local/bin/coordd" serve 2>>"$state/coordd.stderr"'
    )
    return _plist(["/bin/sh", "-c", script], stop_s=10 + MARGIN_S, environment=None, output=None)


def _plist(program: list[str], *, stop_s: int, environment: dict[str, str] | None, output: str | None) -> str:
    import plistlib  # loads an XML parser, and the daemon never comes here

    said: dict[str, object] = {
        "Label": LABEL,
        "ProgramArguments": program,
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 10,  # seconds between two starts
        "ExitTimeOut": stop_s,
        "AbandonProcessGroup": True,  # workers run on when the daemon ends
        "ProcessType": "Interactive",  # others are slowed down, and workers with them
        "Umask": 0o077,
        "SoftResourceLimits": {"NumberOfFiles": OPEN_FILES},
    }
    if environment is not None:
        said["EnvironmentVariables"] = environment
    if output is not None:
        said["StandardOutPath"] = said["StandardErrorPath"] = output
    return plistlib.dumps(said, sort_keys=False).decode()
