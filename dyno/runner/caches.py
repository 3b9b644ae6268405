"""The caches of a cold start: empty ones in place of those that earlier runs may have filled."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from dyno.measure.warnings import warning
from dyno.models.result import ResultWarning

# Where CUDA's driver, JAX, Triton, PyTorch's compiler and Numba keep what they compiled, by their own variables.
_FOLDERS = (
    *("CUDA_CACHE_PATH", "JAX_COMPILATION_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"),
    "NUMBA_CACHE_DIR",
)
# XLA and TensorFlow are told theirs among other options: --tf_xla_persistent_cache_directory=…
_OPTIONS = ("XLA_FLAGS", "TF_XLA_FLAGS", "LIBTPU_INIT_ARGS")
_CACHE = re.compile(r"--(\w*(?:cache|load_autotune)\w*)=[\"']?([^\s\"']+)")


def empty_caches(folder: Path) -> None:
    """Have this process, and all it starts, look for compiled code in new folders below `folder`.

    Before a framework is loaded. Options among an administrator's flags are left as they are, see `warm_caches`.
    """
    for name in _FOLDERS:
        place = folder / name.lower()
        place.mkdir(parents=True)
        os.environ[name] = str(place)


def warm_caches(environ: Mapping[str, str]) -> ResultWarning | None:
    """Some cache that `environ` names isn't empty. Their paths aren't told."""
    named = [(name, environ[name]) for name in _FOLDERS if environ.get(name)]
    for variable in _OPTIONS:
        for option, path in _CACHE.findall(environ.get(variable, "")):
            named.append((f"{variable}: --{option}", path))
    warm: list[JsonValue] = [name for name, path in named if _filled(Path(path))]
    return warning("WARM_CACHE", caches=warm) if warm else None


def _filled(path: Path) -> bool:
    try:
        return any(path.iterdir()) if path.is_dir() else path.stat().st_size > 0
    except OSError:  # nothing is there, or nothing that this process could read either
        return False
