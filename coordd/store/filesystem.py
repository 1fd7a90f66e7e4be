"""File systems on which SQLite's locks and shared memory do not hold."""

import os
import sys
from typing import Final

from coordd.domain.errors import StoreRefused

OVERRIDE: Final = "COORDD_ALLOW_UNSAFE_FILESYSTEM"

# Network and VM-shared: locks that are not enforced for all, or a WAL that two kernels see differently.
UNSAFE: Final[frozenset[str]] = frozenset(
    {
        "nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afpfs", "webdav", "davfs", "9p", "drvfs", "afs",
        "ncpfs",
        "virtiofs", "vboxsf", "vmhgfs", "prl_fs", "fuse.sshfs", "fuse.vmhgfs-fuse", "fuse.rclone", "fuse.s3fs",
        "fuse.gcsfuse", "fuse.glusterfs", "fuse.davfs", "fuse.smbnetfs", "osxfuse", "macfuse", "glusterfs", "ceph",
        "fuse.ceph", "lustre", "gpfs", "ocfs2", "gfs2", "orangefs", "beegfs", "acfs",
    }
)  # fmt: skip


def refuse_unsafe(directory: str, mounts: str | None = None) -> None:
    """Raise StoreRefused (cause `unsafe_filesystem`) where the store would not be safe, unless overridden.

    Args: mounts: the text of /proc/self/mountinfo; read from the kernel when None.
    """
    if os.environ.get(OVERRIDE) == "1":
        return
    kind = filesystem_of(os.path.realpath(directory), read_mounts() if mounts is None else mounts)
    if kind in UNSAFE:
        raise StoreRefused(
            f"{directory} is on {kind}, where SQLite's locks do not hold and the store would be damaged; name a "
            f"state directory on a local disk with --state-dir, or set {OVERRIDE}=1 if you know better",
            cause="unsafe_filesystem",
        )


def filesystem_of(path: str, mounts: str) -> str | None:
    """The type of the file system that holds `path`, from mountinfo's text; None where it does not say.

    Of two mounts on one place the later hides the earlier, so the last of the longest wins.
    """
    best, kind = -1, None
    for line in mounts.splitlines():
        fields, _, tail = line.partition(" - ")
        words = fields.split(" ")
        if len(words) < 5 or not tail:
            continue
        point = _unescape(words[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            best, kind = len(point), tail.split(" ")[0]
    return kind


def read_mounts() -> str:
    """What the kernel has mounted, as mountinfo lines; made up from `mount` where there is no /proc."""
    if sys.platform == "linux":
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    return _from_mount_command()


def _from_mount_command() -> str:
    """macOS: `DEVICE on POINT (TYPE, options)`. Not run on macOS by the project's own tests."""
    import subprocess

    text = subprocess.run(["/sbin/mount"], capture_output=True, text=True, check=True).stdout
    return mountinfo_from_mount(text)


def mountinfo_from_mount(text: str) -> str:
    lines = []
    for line in text.splitlines():
        place, _, options = line.rpartition(" (")
        point = place.partition(" on ")[2].replace(" ", "\\040")
        lines.append(f"0 0 0:0 / {point} rw - {options.rstrip(')').split(',')[0].strip()} none rw")
    return "\n".join(lines)


def _unescape(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
