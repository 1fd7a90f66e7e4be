"""Consistent copies of the store, by SQLite's backup API."""

import os
import sqlite3
from contextlib import closing

from coordd.domain.errors import BackupFailed, StoreRefused


def snapshot(path: str, target: str, *, replace: bool = False) -> int:
    """Copy the store at `path` to the new file `target`, mode 0600, checked before it gets its name.

    Returns: the size in bytes.
    Raises: BackupFailed: the target exists, cannot be written, or the copy is not sound; no half file stays.
    """
    if not replace and os.path.lexists(target):
        raise BackupFailed(f"{target} exists already; name a new file")
    temporary = f"{target}.tmp-{os.getpid()}"
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        try:
            with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(temporary)) as copy:
                source.backup(copy)
                copy.execute("pragma journal_mode = delete").fetchall()
            check(temporary)
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            if replace:
                os.replace(temporary, target)
            else:
                os.link(temporary, target)  # fails where `target` has appeared meanwhile; rename would replace it
            _sync_directory(target)
        finally:
            for name in (temporary, f"{temporary}-journal", f"{temporary}-wal", f"{temporary}-shm"):
                if os.path.lexists(name):
                    os.unlink(name)
    except (OSError, sqlite3.Error) as error:
        raise BackupFailed(f"the backup to {target} failed: {error}; nothing was kept of it") from error
    return os.path.getsize(target)


def check(path: str) -> None:
    """Raise BackupFailed unless SQLite finds the file sound."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            rows = connection.execute("pragma integrity_check(1)").fetchall()
    except sqlite3.Error as error:
        raise BackupFailed(f"{path} is not a sound SQLite file: {error}") from error
    if rows != [("ok",)]:
        raise BackupFailed(f"{path} is damaged: {rows[0][0]}")


def restore(backup: str, path: str, *, keep_as: str) -> None:
    """Put a backup in the place of the store at `path`; what stood there is kept as `keep_as`.

    Call it under the lock. The store gets a new name: leases granted since the backup was made exist elsewhere, and
    an id must never be given out twice.

    Raises: BackupFailed: the backup is not sound, not ours or too new; the store is as before.
    """
    from coordd.store.migrations import current_version, new_store_name

    temporary = f"{path}.restoring"
    for suffix in ("", "-wal", "-shm", "-journal"):
        if os.path.lexists(temporary + suffix):
            os.unlink(temporary + suffix)
    if not os.path.isfile(backup):
        raise BackupFailed(f"{backup} is not a file; name a backup")
    try:
        if current_version(backup) == 0:
            raise BackupFailed(f"{backup} holds no store")
        snapshot(backup, temporary)
        with closing(sqlite3.connect(temporary)) as copy:
            copy.execute("update meta set value = ? where key = 'store'", (new_store_name(),))
            copy.commit()
        if os.path.exists(path):
            snapshot(path, keep_as)  # with whatever its -wal holds
        for suffix in ("-wal", "-shm"):
            if os.path.lexists(path + suffix):
                os.unlink(path + suffix)
        os.replace(temporary, path)
        _sync_directory(path)
    except StoreRefused as error:
        raise BackupFailed(str(error)) from error
    except (OSError, sqlite3.Error) as error:
        raise BackupFailed(f"the restore of {backup} failed: {error}") from error
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)


def _sync_directory(path: str) -> None:
    directory = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
