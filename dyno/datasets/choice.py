"""Which form of a data set is taken, and where its real files may lie."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dyno.datasets.kinds import DataKind
from dyno.errors import RunFailed
from dyno.settings import Settings

Data = TypeVar("Data")


def keras_cache() -> Path:
    """Where `keras.datasets` keeps what it has downloaded."""
    home = os.environ.get("KERAS_HOME")
    return (Path(home) if home else Path.home() / ".keras") / "datasets"


def folders(settings: Settings, name: str) -> list[Path]:
    """Where the real files of the set `name` are looked for, in this order; none of them need exist."""
    roots = [settings.data_dir] if settings.data_dir else []
    return [root / name for root in (*roots, keras_cache())]


def choose(
    kind: DataKind,
    *,
    real: Callable[[], Data | None],
    sample: Callable[[], Data] | None,
    synthetic: Callable[[], Data],
    absent: str,
) -> Data:
    """The data of that kind; `auto` is real, else the sample, else the synthetic twin.

    `real` answers None where no file of the set is here, `sample` is None where none ships; `absent` says what was
    looked for. Raises RunFailed (unsupported, dataset_missing), and what `real` raises for a damaged file.
    """
    if kind in ("auto", "real"):
        found = real()
        if found is not None:
            return found
        if kind == "real":
            raise RunFailed("unsupported", "dataset_missing", absent)
    if kind == "synthetic" or (kind == "auto" and sample is None):
        return synthetic()
    if sample is None:
        raise RunFailed("unsupported", "dataset_missing", "of this set no sample ships: its licence is not stated")
    return sample()


def looked_in(settings: Settings, name: str) -> str:
    """The folders, for an error's text."""
    unset = "" if settings.data_dir else " (DYNO_DATA_DIR is unset)"
    return " and ".join(f"{folder}/" for folder in folders(settings, name)) + unset
