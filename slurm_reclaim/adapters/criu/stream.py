"""CRIU's image streaming (`criu dump --stream`, `criu restore --stream`), our side of it.

CRIU connects to a Unix socket in its images directory. For each image it sends a message that names
the file, and one end of a pipe (SCM_RIGHTS); before a restore's pipe it waits for a message that
says whether there is such an image. Messages are a 32-bit length and a protobuf (CRIU,
criu/img-streamer.c and images/img-streamer.proto).
"""

from __future__ import annotations

import os
import socket
import struct

from slurm_reclaim.errors import IntegrityError

CAPTURE_SOCKET = "streamer-capture.sock"
SERVE_SOCKET = "streamer-serve.sock"
_LENGTH = struct.Struct("<I")
_FILENAME, _EXISTS = 0x0A, 0x08  # field 1, as a string and as a boolean
_LONGEST = 4096


def listen(folder: int, name: str, uid: int) -> socket.socket:
    """A socket below the directory that `folder` is a descriptor of, for `uid` alone."""
    path = f"/proc/self/fd/{folder}/{name}"
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    os.chmod(path, 0o600)
    os.chown(path, uid, -1)
    listening.listen(1)
    return listening


def receive_name(connection: socket.socket) -> str | None:
    """The name of the next image; None where CRIU has hung up. Raises IntegrityError;
    ConnectionError where it has with something of ours unread."""
    head = _receive(connection, _LENGTH.size)
    if head is None:
        return None
    (size,) = _LENGTH.unpack(head)
    if not 2 <= size <= _LONGEST:
        raise IntegrityError(f"CRIU's stream: a message of {size} bytes")
    message = _receive(connection, size)
    if message is None:
        raise IntegrityError("CRIU's stream ends within a message")
    return _name(message)


def _name(message: bytes) -> str:
    length, at, shift = 0, 1, 0
    while at < len(message):
        length |= (message[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if not message[at - 1] & 0x80:
            break
    raw = message[at : at + length]
    if message[0] != _FILENAME or len(raw) != length:
        raise IntegrityError("CRIU's stream: a message that names no image")
    name = raw.decode(errors="replace")
    if not name or "/" in name or name.startswith(".") or not name.isprintable():
        raise IntegrityError(f"CRIU's stream: an image named {name!r}")
    return name


def receive_pipe(connection: socket.socket) -> int:
    """The descriptor that follows. Raises IntegrityError; ConnectionError if CRIU has hung up."""
    said, fds, _, _ = socket.recv_fds(connection, 1, 1)
    if not said:
        raise ConnectionResetError("CRIU has hung up")
    if len(fds) != 1:
        for fd in fds:
            os.close(fd)
        raise IntegrityError("CRIU's stream: an image without its pipe")
    return fds[0]


def answer(connection: socket.socket, exists: bool) -> None:
    message = bytes([_EXISTS, exists])
    connection.sendall(_LENGTH.pack(len(message)) + message)


def _receive(connection: socket.socket, size: int) -> bytes | None:
    """Exactly `size` bytes; None at the end of the connection before the first."""
    pieces = b""
    while len(pieces) < size:
        piece = connection.recv(size - len(pieces))
        if not piece:
            if pieces:
                raise IntegrityError("CRIU's stream ends within a message")
            return None
        pieces += piece
    return pieces
