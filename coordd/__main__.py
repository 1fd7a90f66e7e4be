"""The command line of the daemon: flags and signals. Its clients have `coordctl`."""

import os
import signal
import sys
from collections.abc import Callable
from getopt import GetoptError, getopt
from typing import TYPE_CHECKING, Final

from coordd.config.load import load
from coordd.config.settings import Settings
from coordd.domain.errors import BackupFailed, CoordError, StartRefused, StoreRefused
from coordd.protocol.endpoint import config_path, socket_path, state_dir

if TYPE_CHECKING:
    from coordd.app import App
    from coordd.supervision.notify import Notifier

HELP: Final = """\
usage: coordd serve [options]     serve until stopped; the default
       coordd backup FILE         copy the store while no daemon runs (`coordctl backup` does it while one runs)
       coordd restore FILE        put a backup in the store's place; only while no daemon runs
       coordd verify              prove from the receipts that the promises were kept, while no daemon runs
       coordd --version | --help

options:
  --config FILE      the configuration (COORDD_CONFIG, else coordd/config.toml where configurations are)
  --state-dir DIR    where the store is (COORDD_STATE_DIR, else coordd where states are)
  --socket PATH      the control socket (COORDD_SOCKET, else coordd/control.sock in the runtime directory)
  --narrate          print one line per transition
  --until-idle       end, with exit 0, once there is nothing left to do

examples:
  coordd serve --config ./coordd.toml
  coordd serve --state-dir /tmp/try --narrate
  coordd backup ~/coordd-$(date +%F).db

coordctl is the client: try `coordctl status`.
"""


class Usage(Exception): ...


class Options:
    """What the command line and the environment say."""

    def __init__(self, argv: list[str]) -> None:
        try:
            flags, self.arguments = getopt(
                argv, "h", ["help", "version", "config=", "state-dir=", "socket=", "narrate", "until-idle"]
            )
        except GetoptError as error:
            raise Usage(str(error)) from error
        named = dict(flags)
        self.help = "-h" in named or "--help" in named
        self.version = "--version" in named
        self.narrate = "--narrate" in named
        self.until_idle = "--until-idle" in named
        self.config_named = "--config" in named or bool(os.environ.get("COORDD_CONFIG"))
        self.config = config_path(os.environ, named.get("--config"))
        self.state_dir = state_dir(os.environ, named.get("--state-dir"))
        self.socket = socket_path(os.environ, named.get("--socket"), state_override=named.get("--state-dir"))


def main(argv: list[str] | None = None) -> int:
    """Exit codes: 0 done, 1 usage, 2 refused or failed."""
    argv = sys.argv[1:] if argv is None else argv
    command = argv[0] if argv and not argv[0].startswith("-") else "serve"
    try:
        options = Options(argv[1:] if argv and not argv[0].startswith("-") else argv)
        if options.help:
            sys.stdout.write(HELP)
            return 0
        if options.version:
            sys.stdout.write(f"coordd {version()}\n")
            return 0
        commands: dict[str, Callable[[Options], int]]
        commands = {"serve": serve, "backup": backup, "restore": restore, "verify": verify}
        if command in commands:
            return commands[command](options)
        sys.stderr.write(f"coordd: usage: there is no command {command}; see `coordd --help`\n")
        return 1
    except Usage as error:
        sys.stderr.write(f"coordd: usage: {error}; see `coordd --help`\n")
        return 1
    except CoordError as error:
        sys.stderr.write(f"coordd: {error.code}: {error}\n")
        return 2


def serve(options: Options) -> int:
    """Run the daemon in the foreground."""
    if options.arguments:
        raise Usage(f"serve takes no arguments, {options.arguments[0]!r} was given")
    # Before anything opens the store: SQLite's own configuration, and what a supervisor handed over.
    from coordd.store.tuning import tune

    tune()
    from coordd.supervision import logs
    from coordd.supervision.activation import activated_socket
    from coordd.supervision.notify import Notifier

    notifier = Notifier.from_environment()
    activated = activated_socket()
    log_file = os.environ.pop(logs.FILE_VARIABLE, None)
    settings = load(options.config, required=options.config_named)
    set_up_logs(settings, log_file)
    prepare_state_dir(options.state_dir)

    from coordd.liveness.clocks import SystemClock
    from coordd.store.filesystem import refuse_unsafe
    from coordd.store.lock import StateLock
    from coordd.store.store import Store
    from coordd.supervision.endpoint_socket import bind, identity, unlink_own

    refuse_unsafe(options.state_dir)
    lock = StateLock(options.state_dir)
    lock.acquire()
    try:
        path = Store.prepare(options.state_dir)
        # Bound before any thread runs, because the umask belongs to the whole process.
        listener = activated or bind(options.socket)
        own = None if activated else identity(options.socket)
        try:
            clock = SystemClock()
            store = Store(path, clock)

            import trio

            from coordd.app import App

            app = App(
                store=store,
                clock=clock,
                listener=listener,
                settings=settings,
                config=lambda: load(options.config, required=options.config_named),
                version=version(),
                socket_path=options.socket,
                state_dir=options.state_dir,
            )
            if options.narrate:
                from coordd.narrator import narrate

                app.core.stream.add(narrate)

            def reloaded(new: Settings) -> None:
                set_up_logs(new, log_file)

            app.reloaded = reloaded
            raise_file_limit()
            trio.run(run, app, notifier, options)
        finally:
            unlink_own(options.socket, own)
    finally:
        lock.release()
    return 0


async def run(app: "App", notifier: "Notifier", options: Options) -> None:
    """The daemon, its signals and its supervisor's notices."""
    import gc

    import trio

    from coordd.supervision.notify import run_watchdog

    async def follow_signals() -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as received:
            async for number in received:
                if number == signal.SIGHUP:
                    notifier.reloading()
                    app.reload_or_say_why()
                    notifier.ready()
                else:
                    app.stop(f"received {signal.Signals(number).name}")

    async def healthy() -> bool:
        return await app.is_healthy()

    def ready() -> None:
        # What is there now stays, and need not be looked at again. A group of ops makes more objects than the usual
        # threshold and frees them at once: to collect at every group is 7 % of the time of an op.
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        notifier.ready()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow_signals)
        nursery.start_soon(run_watchdog, notifier, healthy)
        await app.run(ready, notifier.stopping, until_idle=options.until_idle)
        nursery.cancel_scope.cancel()


def backup(options: Options) -> int:
    """A copy of the store that no daemon serves now."""
    from coordd.store.backup import snapshot

    (target,) = one_argument(options, "backup FILE")
    with locked(options):
        size = snapshot(store_file(options), os.path.abspath(target))
    sys.stdout.write(f"{target}: {size} bytes\n")
    return 0


def restore(options: Options) -> int:
    """A backup in the store's place."""
    import time

    from coordd.store import backup

    (source,) = one_argument(options, "restore FILE")
    prepare_state_dir(options.state_dir)
    path = os.path.join(options.state_dir, "coordd.db")
    keep_as = f"{path}.replaced-{time.strftime('%Y%m%dT%H%M%S')}"
    with locked(options):
        kept = os.path.exists(path)
        backup.restore(os.path.abspath(source), path, keep_as=keep_as)
    sys.stdout.write(f"restored {source}" + (f"; what was there is kept as {keep_as}\n" if kept else "\n"))
    return 0


def verify(options: Options) -> int:
    """What `coordctl verify` does, for a store that no daemon serves now."""
    import sqlite3
    from contextlib import closing

    from coordd.store import migrations
    from coordd.store.connection import open_reader, unavailable
    from coordd.store.verify import verify as prove

    if options.arguments:
        raise Usage("verify takes no arguments")
    path = store_file(options)
    with locked(options):
        migrations.current_version(path)
        try:
            with closing(open_reader(path)) as connection:
                report = prove(connection)
        except sqlite3.Error as error:
            raise unavailable(error) from error
    for problem in report.problems:
        where = f"receipt {problem.seq}" if problem.seq is not None else "the file"
        sys.stdout.write(f"{problem.check}: {where} {problem.lease_id or ''}: {problem.message}\n")
    sys.stdout.write(
        f"{report.receipts} receipts, {report.leases} leases: {'valid' if report.valid else 'NOT VALID'}\n"
    )
    return 0 if report.valid else 2


def one_argument(options: Options, form: str) -> list[str]:
    if len(options.arguments) != 1:
        raise Usage(f"it is `coordd {form}`")
    return options.arguments


def locked(options: Options) -> "StateLockGuard":
    return StateLockGuard(options.state_dir)


class StateLockGuard:
    """Keeps the daemon out while a file is copied."""

    def __init__(self, directory: str) -> None:
        from coordd.store.lock import StateLock

        if not os.path.isdir(directory):
            raise StoreRefused(f"there is no store in {directory}; name another with --state-dir")
        self._lock = StateLock(directory)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def store_file(options: Options) -> str:
    path = os.path.join(options.state_dir, "coordd.db")
    if not os.path.exists(path):
        raise BackupFailed(f"there is no store in {options.state_dir}; name another with --state-dir")
    return path


def prepare_state_dir(path: str) -> None:
    """The state directory: ours, and closed to others.

    Raises: StartRefused.
    """
    import stat

    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        found = os.stat(path)
    except OSError as error:
        raise StartRefused(f"{path} cannot hold the store: {error.strerror}; name another with --state-dir") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise StartRefused(f"{path} is not a directory of yours; name another with --state-dir")
    if found.st_mode & 0o077:
        raise StartRefused(f"{path} is open to other users; run `chmod 700` on it", cause="state_directory")


def set_up_logs(settings: Settings, file: str | None) -> None:
    from coordd.supervision import logs

    daemon = settings.daemon
    logs.set_up(level=daemon.log_level, format=daemon.log_format, file=file, file_bytes=daemon.log_bytes)


def raise_file_limit() -> None:
    """As many descriptors as we may have: each connection and each watched process takes one."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else max(soft, 65_536)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, 1_048_576), hard))


def version() -> str:
    from coordd.version import VERSION

    return VERSION


if __name__ == "__main__":
    sys.exit(main())
