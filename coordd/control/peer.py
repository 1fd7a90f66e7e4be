"""Who is at the other end of a connection, by the kernel's word. Where it does not say, nobody is let in."""

import socket
import struct
import sys

import msgspec


class Peer(msgspec.Struct, frozen=True):
    uid: int
    pid: int  # the process that connected; it may have passed the connection on; 0: in a namespace we cannot see


class PeerUnknown(Exception):
    """The kernel does not say who is asking."""


def peer_of(connection: socket.socket) -> Peer:
    """Raises PeerUnknown."""
    try:
        if sys.platform == "linux":
            pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        elif sys.platform == "darwin":
            uid, pid = _darwin(connection)
        else:
            raise PeerUnknown(f"coordd cannot tell peers apart on {sys.platform}")
    except (OSError, struct.error) as error:
        raise PeerUnknown(f"the kernel does not say who is asking: {error}") from error
    if uid < 0:
        raise PeerUnknown("the kernel does not know who is asking")
    return Peer(uid, pid)


def _darwin(connection: socket.socket) -> tuple[int, int]:
    """`struct xucred` at level 0. Not run by the project's own tests but for the unpacking."""
    uid = uid_from_xucred(connection.getsockopt(0, 1, 76))
    (pid,) = struct.unpack("i", connection.getsockopt(0, 2, 4))
    return uid, pid


def uid_from_xucred(data: bytes) -> int:
    """The uid in macOS's `struct xucred` { version, uid, ngroups, groups[16] }; version 0 is the only one."""
    version, uid = struct.unpack_from("II", data)
    if version != 0:
        raise PeerUnknown(f"unknown version {version} of peer credentials")
    return int(uid)
