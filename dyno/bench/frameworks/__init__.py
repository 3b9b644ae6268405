"""The frameworks that can execute a workload, by name. Only `load` imports a framework."""

from dyno.bench.frameworks.interface import Framework
from dyno.bench.frameworks.jax import Jax
from dyno.bench.frameworks.tensorflow import TensorFlow
from dyno.bench.frameworks.torch import Torch
from dyno.errors import FrameworkMissing

_FRAMEWORKS: dict[str, type[Framework]] = {"tensorflow": TensorFlow, "jax": Jax, "torch": Torch}


def framework(name: str) -> Framework:
    """A new framework that isn't loaded yet. Raises FrameworkMissing if this version doesn't support it."""
    try:
        return _FRAMEWORKS[name]()
    except KeyError:
        raise FrameworkMissing(f'unknown framework "{name}"; supported: {", ".join(sorted(_FRAMEWORKS))}') from None


def supported() -> list[str]:
    """The names that `framework` accepts, installed or not."""
    return sorted(_FRAMEWORKS)
