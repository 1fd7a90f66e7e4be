"""`exec`: runs a command for each offer, in the repository's directory, in a session of its own.

Its process is the lease's anchor. It outlives the daemon: its output goes straight to a file, which is kept to size
from outside, so no pipe breaks when the daemon ends. Exit without `complete` is a failed attempt, and exit 0 is not
done. No shell; stdin is /dev/null; the environment is an allow-list and COORD_*.
"""

import errno
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import IO, Final

import msgspec
import trio

from coordd.config.settings import Exec
from coordd.domain.anchor import Anchor
from coordd.domain.errors import AnchorGone
from coordd.domain.lease import Lease
from coordd.domain.offer import Offer, prompt
from coordd.transports.base import Delivery, Freed

log = logging.getLogger(__name__)

LOGS_KEPT: Final = 200
EXITS_KEPT: Final = 64
SIZE_LOOK_S: Final = 1.0
CUT: Final = b"[coordd: earlier output was cut here]\n"
TERMINAL_ERRNOS: Final = frozenset({errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.ENOEXEC, errno.ELOOP, errno.EPERM})


class Child(msgspec.Struct):
    """A process that was started for a lease, by this daemon or by the one before it."""

    lease: Lease
    anchor: Anchor
    process: trio.Process | None  # None: it outlived the daemon that started it
    log_path: str
    settings: Exec
    stopping: bool = False


class ExecTransport:
    kind = "exec"

    def __init__(
        self,
        *,
        log_dir: str,
        environ: Mapping[str, str],
        socket_path: str,
        settings_of: Callable[[str], Exec | None],
        identify: Callable[[int], Anchor],
        is_running: Callable[[Anchor], bool],
        freed: Freed,
    ) -> None:
        self._log_dir = log_dir
        self._environ = environ
        self._socket_path = socket_path
        self._settings_of = settings_of
        self._identify = identify
        self._is_running = is_running
        self._freed = freed
        self._children: dict[int, Child] = {}  # by row of the lease
        self._exits: dict[int, str] = {}  # how the last few processes ended, by number
        self._nursery: trio.Nursery | None = None
        self._started = trio.Event()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._started.set()
            await trio.sleep_forever()

    async def deliver(self, offer: Offer) -> Delivery:
        """Start the repository's command. Terminal: it cannot be started here at all."""
        await self._started.wait()
        lease = offer.lease
        known = self._children.get(lease.row)
        if known is not None and known.lease.generation == lease.generation:
            return Delivery("delivered", anchor=known.anchor)
        settings = self._settings_of(lease.repo)
        if settings is None:
            return Delivery("terminal", "not_configured")
        log_path = self._log_path(lease)
        try:
            with self._open_log(offer) as output:
                process = await trio.lowlevel.open_process(
                    list(settings.argv),
                    cwd=offer.path,
                    env=self.environment(offer, settings),
                    stdin=subprocess.DEVNULL,
                    stdout=output.fileno(),
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    umask=0o022,  # the daemon's own would hide a worker's files from everyone it works with
                )
        except NotADirectoryError:
            return Delivery("retryable", "path_missing")
        except OSError as error:
            code = errno.errorcode.get(error.errno or 0, "os_error").lower()
            log.warning("the command for %s could not be started: %s", lease.repo, code)
            return Delivery("terminal" if error.errno in TERMINAL_ERRNOS else "retryable", f"exec_{code}")
        try:
            anchor = self._identify(process.pid)
        except AnchorGone:  # it has ended already, and its exit is what counts
            anchor = Anchor("process", process.pid, 0, "")
        self._follow(Child(lease, anchor, process, log_path, settings))
        return Delivery("delivered", anchor=anchor)

    def adopt(self, lease: Lease, anchor: Anchor) -> None:
        """Follow a process that outlived the daemon that started it."""
        settings = self._settings_of(lease.repo)
        if settings is not None:
            self._follow(Child(lease, anchor, None, self._log_path(lease), settings))

    def is_busy(self, repo: str) -> bool:
        return any(child.lease.repo == repo for child in self._children.values())

    def ended(self, lease: Lease) -> None:
        child = self._children.get(lease.row)
        if child is not None and lease.state in ("retry_wait", "stopped") and not child.stopping:
            child.stopping = True
            assert self._nursery is not None
            self._nursery.start_soon(self._stop, child)

    def exit_reason(self, pid: int) -> str | None:
        """How one of our processes ended, as a reason code; None for a process that is not ours, or still runs."""
        for child in self._children.values():
            if child.anchor.pid == pid and child.process is not None:
                code = child.process.poll()
                return None if code is None else reason_of(code)
        return self._exits.pop(pid, None)

    def environment(self, offer: Offer, settings: Exec) -> dict[str, str]:
        """What the command finds in its environment: no task text and no checkpoint, only where to ask for them."""
        lease = offer.lease
        kept = {name: self._environ[name] for name in settings.env if name in self._environ}
        return kept | {
            "COORDCTL": shutil.which("coordctl", path=os.path.dirname(sys.executable)) or "coordctl",
            "COORDD_SOCKET": self._socket_path,
            "COORD_ATTEMPT": str(lease.attempt),
            "COORD_GENERATION": str(lease.generation),
            "COORD_ITEM_ID": lease.item_id,
            "COORD_LEASE_ID": lease.lease_id,
            "COORD_PROMPT": prompt(lease),
            "COORD_REPO": lease.repo,
            "COORD_SOURCE": lease.source,
            "COORD_SOURCE_NAME": lease.source_name,
            "COORD_WORKER": f"exec-{lease.lease_id}",
        }

    def _follow(self, child: Child) -> None:
        assert self._nursery is not None
        self._children[child.lease.row] = child
        self._nursery.start_soon(self._wait, child)

    async def _wait(self, child: Child) -> None:
        """Keep a process's log to its size until it has ended."""
        ended = trio.Event()
        async with trio.open_nursery() as nursery:

            async def size() -> None:
                while True:
                    await trio.sleep(SIZE_LOOK_S)
                    cut_to_size(child.log_path, child.settings.log_bytes)
                    if child.process is None and not self._is_running(child.anchor):
                        ended.set()

            nursery.start_soon(size)
            if child.process is not None:
                self._exits[child.anchor.pid] = reason_of(await child.process.wait())
                for pid in list(self._exits)[:-EXITS_KEPT]:
                    del self._exits[pid]
            else:
                await ended.wait()
            nursery.cancel_scope.cancel()
        cut_to_size(child.log_path, child.settings.log_bytes)
        if self._children.get(child.lease.row) is child:
            del self._children[child.lease.row]
        self._freed(child.lease.repo)

    async def _stop(self, child: Child) -> None:
        """End what still runs for a lease that was taken away: the whole session, politely, then for good."""
        for number, pause_s in ((signal.SIGTERM, child.settings.stop_s), (signal.SIGKILL, 0.0)):
            if not self._runs(child):
                return
            try:
                os.killpg(child.anchor.pid, number)
            except ProcessLookupError:
                return
            with trio.move_on_after(pause_s):
                while self._runs(child):
                    await trio.sleep(0.1)

    def _runs(self, child: Child) -> bool:
        if child.process is not None:
            return child.process.poll() is None
        return self._is_running(child.anchor)

    def _log_path(self, lease: Lease) -> str:
        return os.path.join(self._log_dir, f"{lease.lease_id}-{lease.attempt}.log")

    def _open_log(self, offer: Offer) -> IO[bytes]:
        """Raises OSError, also when the repository's directory is missing."""
        if not os.path.isdir(offer.path):
            raise NotADirectoryError(errno.ENOTDIR, "the repository's directory is missing")
        os.makedirs(self._log_dir, mode=0o700, exist_ok=True)
        prune(self._log_dir, LOGS_KEPT - 1)
        return open(self._log_path(offer.lease), "ab", opener=_private)


def reason_of(code: int) -> str:
    """`exited:N`, or `killed:NAME` for a process that a signal ended."""
    if code >= 0:
        return f"exited:{code}"
    try:
        return f"killed:{signal.Signals(-code).name.lower()}"
    except ValueError:
        return f"killed:{-code}"


def cut_to_size(path: str, limit: int) -> None:
    """Keep the end of a log that others append to. What is written in this very moment may be lost."""
    try:
        if os.path.getsize(path) <= limit:
            return
        with open(path, "r+b") as file:
            file.seek(-(limit // 2), os.SEEK_END)
            file.readline()
            rest = file.read()
            file.truncate(0)
        with open(path, "ab", opener=_private) as file:
            file.write(CUT + rest)
    except OSError as error:
        log.warning("a worker's log could not be kept to its size: %s", error.strerror)


def prune(directory: str, most: int) -> None:
    """Keep the newest logs of a directory."""
    with os.scandir(directory) as entries:
        found = sorted((entry.stat().st_mtime_ns, entry.path) for entry in entries if entry.name.endswith(".log"))
    for _, path in found[: max(0, len(found) - most)]:
        os.unlink(path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
