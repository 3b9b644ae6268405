"""Which frameworks are installed, from the packages' metadata: nothing is imported."""

from __future__ import annotations

from importlib import metadata
from typing import get_args

from dyno.models.spec import DeviceKind, FrameworkName

# A framework's distributions in the order of preference; builds differ in name, not in what they import.
_DISTRIBUTIONS: dict[str, tuple[str, ...]] = {
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tensorflow-cpu-aws"),
    "jax": ("jax",),
    "torch": ("torch",),
}


# JAX needs libtpu beside it, which its discovery insists on; why only JAX: docs/decisions/0012.
_FOR_TPU: dict[str, tuple[str, ...]] = {"jax": ("jax",)}


def installed_frameworks(kind: DeviceKind = "cpu") -> dict[str, str]:
    """Framework name -> version, of those that could be imported here for a device of that kind."""
    distributions = _FOR_TPU if kind == "tpu" else _DISTRIBUTIONS
    found = {name: _version(distributions.get(name, ())) for name in get_args(FrameworkName)}
    return {name: version for name, version in found.items() if version is not None}


def _version(distributions: tuple[str, ...]) -> str | None:
    for distribution in distributions:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None
