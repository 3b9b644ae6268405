"""Checks before a service starts: whether a folder is writable, whether a TCP port is free."""

import errno
import socket
import tempfile
from pathlib import Path

from dyno import folders

_LAST_PORT = 65535
_TRIES = 100


def nearest(folder: Path) -> Path:
    """`folder`, or its nearest parent that exists. Raises OSError if a parent can't be read."""
    return next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())


def write_error(folder: Path) -> str | None:
    """Why `folder` can't hold this user's files, or None: it isn't writable, or others can write in it.

    Tries a real write, since root may write despite the folder's mode.
    """
    existing = folder
    try:
        existing = nearest(folder)
        if not existing.is_dir():
            return "it is not a folder" if existing == folder else f"{existing} is not a folder"
        if existing == folder and (reason := folders.unsafe_reason(folder)):
            return reason
        with tempfile.TemporaryDirectory(prefix=".dyno-", dir=existing):
            return None
    except OSError as error:
        return f"{existing} isn't writable: {error.strerror}"


def free_port(host: str = "127.0.0.1") -> int:
    """A port that was free a moment ago."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def bind_error(host: str, port: int) -> str | None:
    """Why a service can't listen there and what to do, or None. Port 0 stands for any free port."""
    if (error := _listen_error(host, port)) is None:
        return None
    if error.errno != errno.EADDRINUSE:
        return f"can't bind {host}, port {port}: {error.strerror}; choose another with --port or DYNO_HOST"
    others = range(port + 1, min(port + _TRIES, _LAST_PORT) + 1)
    free = next((other for other in others if _listen_error(host, other) is None), 0)
    return f"port {port} is taken; try --port {free}"


def _listen_error(host: str, port: int) -> OSError | None:
    """Bind as a server does: with SO_REUSEADDR, and to every address of the name."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in addresses:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
    except OSError as error:
        return error
    return None
