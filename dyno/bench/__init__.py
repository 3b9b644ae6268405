"""The instrument: measures a spec on a device of this host. It needs no service, no Redis and no web framework.

    import dyno.bench

    result = dyno.bench.run({"workload": "matmul", "params": {"n": 1024}}, device="cpu")

`Bench` keeps the processes of a device for several specs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dyno.bench.bench import Bench as Bench
    from dyno.bench.bench import run as run

_EXPORTS = ("Bench", "run")
__all__ = list(_EXPORTS)


def __getattr__(name: str) -> Any:
    """Import at first use: most modules of this package need only a few of the others."""
    if name in _EXPORTS:
        return getattr(import_module("dyno.bench.bench"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
