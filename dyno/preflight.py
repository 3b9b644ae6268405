"""Checks before a service starts: whether files can be written to a folder, whether a TCP port is free."""

from __future__ import annotations

import errno
import socket
import tempfile
from pathlib import Path

_LAST_PORT = 65535
_TRIES = 100


def nearest(folder: Path) -> Path:
    """`folder`, or the nearest of its parents that exists. Raises OSError where that can't be seen."""
    return next(each for each in (folder, *folder.absolute().parents) if each.exists())


def write_error(folder: Path) -> str | None:
    """Why nothing can be written there, None where it can. Tried for real, since root may write where modes say no."""
    there = folder
    try:
        there = nearest(folder)
        if not there.is_dir():
            return "it is not a folder" if there == folder else f"{there} is not a folder"
        with tempfile.TemporaryDirectory(prefix=".dyno-", dir=there):
            return None
    except OSError as error:
        return f"nothing can be written to {there}: {error.strerror}"


def free_port(host: str = "127.0.0.1") -> int:
    """A port that was free a moment ago."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def bind_error(host: str, port: int) -> str | None:
    """Why no service can listen there, with what to do about it; None where one can. Port 0 is any free one."""
    if (error := _listen_error(host, port)) is None:
        return None
    if error.errno != errno.EADDRINUSE:
        return f"{host}, port {port} can't be bound: {error.strerror}; choose another with --port or DYNO_HOST"
    others = range(port + 1, min(port + _TRIES, _LAST_PORT) + 1)
    free = next((other for other in others if _listen_error(host, other) is None), 0)
    return f"port {port} is taken; try --port {free}"


def _listen_error(host: str, port: int) -> OSError | None:
    """As a server binds: with SO_REUSEADDR, and to every address of a name."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
    except OSError as error:
        return error
    return None
