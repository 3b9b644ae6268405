"""Reads the contents of a namespace."""

from __future__ import annotations

from collections.abc import Callable

from dyno.store.stored_results import decompress, execute_raw


def contents(client, namespace):
    """All values by key, as text."""
    read: dict[str, Callable[[str], object]] = {
        "zset": lambda name: client.zrange(name, 0, -1),
        "set": client.smembers,
        "list": lambda name: client.lrange(name, 0, -1),
        "stream": client.xrange,
        "hash": client.hgetall,
        "string": lambda name: _text(execute_raw(client, "GET", name)),
    }
    names = map(str, client.scan_iter(f"{namespace}:*"))
    return {name: str(read[str(client.type(name))](name)) for name in names}


def _text(stored: bytes) -> str:
    return decompress(stored) if stored[:1] < b" " else stored.decode()  # a compressed value begins with a small number
