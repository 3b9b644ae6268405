"""The API without garbage collection: on SIGUSR1 it logs a line with the objects that only a collection frees."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys

from service.__main__ import main
from service.server.http_protocol import HttpProtocol
from service.server.process import GarbageCollection

TOLD = "only a collector would free"


def start(self: GarbageCollection) -> None:
    """Replaces GarbageCollection.start."""
    gc.collect()
    gc.freeze()
    gc.disable()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, tell)


def tell() -> None:
    """Collect garbage, and print the types of the freed objects and the number of remaining connections."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    found = sorted({f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage})
    gc.set_debug(0)
    gc.garbage.clear()
    gc.collect()
    connections = sum(isinstance(each, HttpProtocol) for each in gc.get_objects())
    sys.stderr.write(f"{TOLD} {json.dumps([found, connections])}\n")


if __name__ == "__main__":
    GarbageCollection.start = start  # type: ignore[method-assign]
    sys.exit(main())
