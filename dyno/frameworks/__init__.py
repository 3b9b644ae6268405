"""The frameworks that can execute a workload, by name. Nothing here imports one before `load`."""

from __future__ import annotations

from dyno.errors import FrameworkMissing
from dyno.frameworks.contract import Framework
from dyno.frameworks.jax import Jax
from dyno.frameworks.tensorflow import TensorFlow
from dyno.frameworks.torch import Torch

_FRAMEWORKS: dict[str, type[Framework]] = {"tensorflow": TensorFlow, "jax": Jax, "torch": Torch}


def framework(name: str) -> Framework:
    """A new, not yet loaded framework. Raises FrameworkMissing for one that this version can't drive."""
    try:
        return _FRAMEWORKS[name]()
    except KeyError:
        raise FrameworkMissing(f'no framework "{name}" here; there is: {", ".join(sorted(_FRAMEWORKS))}') from None


def supported() -> list[str]:
    """The names `framework` accepts, whether or not they are installed."""
    return sorted(_FRAMEWORKS)
