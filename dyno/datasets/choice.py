"""Which form of a data set is taken, and where its real files may lie."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from dyno.datasets.fetch import Fetcher, Remote
from dyno.datasets.kinds import DataKind
from dyno.errors import DatasetDamaged, RunFailed
from dyno.models.result import DataOrigin
from dyno.settings import Settings


class Loaded(Protocol):
    """What every loader answers with: a dataclass that says where its content comes from."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def origin(self) -> DataOrigin: ...


_NAMED = 5  # entries of a folder that an error tells

Data = TypeVar("Data", bound=Loaded)


def keras_cache() -> Path:
    """Where `keras.datasets` keeps what it has downloaded."""
    home = os.environ.get("KERAS_HOME")
    return (Path(home) if home else Path.home() / ".keras") / "datasets"


def folders(settings: Settings, name: str) -> list[Path]:
    """Where the real files of the set `name` are looked for, in this order; none of them need exist."""
    roots = [settings.data_dir] if settings.data_dir else []
    return [root / name for root in (*roots, keras_cache())]


def looked_in(settings: Settings, name: str) -> str:
    """Those folders, for an error's text."""
    unset = "" if settings.data_dir else " (DYNO_DATA_DIR is unset)"
    return " and ".join(f"{folder}/" for folder in folders(settings, name)) + unset


@dataclass(frozen=True)
class Forms(Generic[Data]):
    """The forms of the set `name`: `real` answers None where none of its files is here, `sample` is None where none
    ships. `absent` says what was looked for. `remotes` are the files that make up the real set, where addresses and
    sums of them are known."""

    name: str
    real: Callable[[], Data | None]
    sample: Callable[[], Data] | None
    synthetic: Callable[[], Data]
    absent: str
    remotes: Sequence[Remote] = ()


def choose(settings: Settings, kind: DataKind, forms: Forms[Data], fetcher: Fetcher | None = None) -> Data:
    """The data of that kind; `auto` is real (fetched, where the settings allow it), else sample, else synthetic.

    A folder of the set's in which nothing is known is no reason to take another form: part of it may be missing.
    Where `auto` would have fetched and could not, the origin's note says why. Raises DatasetDamaged for a file or
    folder that is not what it should be, and RunFailed (unsupported, dataset_missing).
    """
    if kind == "synthetic":
        return forms.synthetic()
    if kind == "sample":
        if forms.sample is None:
            raise RunFailed("unsupported", "dataset_missing", f"of {forms.name} no sample ships: no licence allows it")
        return forms.sample()
    found = _real(forms)
    if found is not None:
        return found
    if not (settings.download and forms.remotes):  # what is missing would be fetched
        _refuse_what_is_unknown(settings, forms)
    try:
        return _fetched(settings, forms, fetcher or Fetcher())
    except RunFailed as missing:
        if kind == "real":
            raise
        _refuse_what_is_unknown(settings, forms)
        return _instead(forms, missing.detail if settings.download and forms.remotes else None)


def _real(forms: Forms[Data]) -> Data | None:
    try:
        return forms.real()
    except OSError as error:  # a folder that may not be looked into, a disk that fails
        raise DatasetDamaged(f"{forms.name}: can't be read: {error}") from error


def _refuse_what_is_unknown(settings: Settings, forms: Forms[Data]) -> None:
    """A folder of the set's that holds something, but nothing that is read: unpacked in part, or otherwise named."""
    for folder in folders(settings, forms.name):
        try:
            held = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
        except FileNotFoundError:
            if folder.is_symlink():
                raise DatasetDamaged(f"{folder} is a link to nowhere; {forms.absent}") from None
            continue
        except OSError as error:
            raise DatasetDamaged(f"{forms.name}: can't be read: {error}") from error
        if held:
            raise DatasetDamaged(f"{folder} holds {', '.join(held[:_NAMED])}; {forms.absent}")


def _fetched(settings: Settings, forms: Forms[Data], fetcher: Fetcher) -> Data:
    if settings.download and forms.remotes:
        fetcher.into(folders(settings, forms.name)[0], forms.remotes)
        found = _real(forms)
        if found is not None:
            return found
    hint = "" if settings.download or not forms.remotes else "; DYNO_DOWNLOAD=1 would fetch it"
    raise RunFailed("unsupported", "dataset_missing", forms.absent + hint)


def _instead(forms: Forms[Data], missing: str | None) -> Data:
    data = forms.synthetic() if forms.sample is None else forms.sample()
    if missing is None:
        return data
    notes = [note for note in (data.origin.note, f"not the real set: {missing}") if note]
    return replace(data, origin=data.origin.model_copy(update={"note": "; ".join(notes)}))
