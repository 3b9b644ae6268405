"""Where a data set comes from: its real files, a download, the sample that ships, or synthetic data.

DYNO_DOWNLOAD=1 allows a download from the set's official address: over https alone (redirects too), up to the known
size, and with the known sum. The files appear under their names complete or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import Field, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, Any, ClassVar, Generic, Literal, Protocol, TypeVar
from urllib.parse import urlsplit

from dyno.errors import DatasetDamaged, RunFailed
from dyno.models.result import DataOrigin
from dyno.settings import Settings

# auto: the real set if it is here, else the sample that ships, else the synthetic twin
DataKind = Literal["auto", "real", "sample", "synthetic"]
UnsampledKind = Literal["auto", "real", "synthetic"]  # of a set that no licence allows to ship a sample of
SAMPLED = "auto: the real data set if the worker has it, else the shipped sample or synthetic data"
UNSAMPLED = "auto: the real data set if the worker has it, else synthetic data; Dyno ships no sample"


_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Remote:
    """One file at its official address, of exactly so many `size_bytes`."""

    url: str
    sha256: str
    size_bytes: int

    @property
    def name(self) -> str:
        return PurePosixPath(urlsplit(self.url).path).name


@dataclass(frozen=True)
class Fetcher:
    """How files are fetched. `schemes` other than https are for tests against a server on the same host."""

    schemes: frozenset[str] = frozenset({"https"})
    patience_s: float = 15.0  # without a byte
    deadline_s: float = 240.0  # for all files of a set: less than a silent runner is given

    def into(self, folder: Path, remotes: Sequence[Remote]) -> None:
        """All `remotes` as files of `folder`, or none of them.

        Raises RunFailed (unsupported, dataset_missing) naming the address that can't be had, and DatasetDamaged for
        one that answers with something else than the known file.
        """
        by_s = time.monotonic() + self.deadline_s
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as stage:
                for remote in remotes:
                    self._fetch(remote, Path(stage) / remote.name, by_s)
                folder.mkdir(exist_ok=True)
                for remote in remotes:
                    (Path(stage) / remote.name).replace(folder / remote.name)
        except OSError as error:  # a full disk, a folder that may not be written
            raise _missing(f"{folder}: can't be written: {error}") from error

    def _fetch(self, remote: Remote, path: Path, by_s: float) -> None:
        digest, size_bytes = hashlib.sha256(), 0
        with self._opened(remote.url) as response, path.open("xb") as file:
            for chunk in _chunks(response, remote.url):
                digest.update(chunk)
                size_bytes += file.write(chunk)
                if size_bytes > remote.size_bytes:
                    raise DatasetDamaged(f"{remote.url}: more than the {remote.size_bytes} bytes that were published")
                if time.monotonic() > by_s:
                    raise _missing(f"{remote.url}: not all there after {self.deadline_s:g} s")
            if size_bytes < (announced_bytes := _announced_bytes(response, remote)):
                raise _missing(f"{remote.url}: broke off after {size_bytes} of {announced_bytes} bytes")
        if digest.hexdigest() != remote.sha256:
            raise DatasetDamaged(
                f"{remote.url}: not the file as published: sha256 {digest.hexdigest()}, not {remote.sha256}"
            )

    @contextlib.contextmanager
    def _opened(self, url: str) -> Iterator[http.client.HTTPResponse]:
        self.check(url)
        opener = urllib.request.build_opener(_Redirects(self))
        try:
            response = opener.open(url, timeout=self.patience_s)
        except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
            raise _missing(f"{url}: can't be fetched: {error}") from error
        with response:
            yield response

    def check(self, url: str) -> None:
        """Raises RunFailed for an address of another scheme."""
        if urlsplit(url).scheme not in self.schemes:
            raise _missing(f"{url}: only {', '.join(sorted(self.schemes))} is trusted")


class _Redirects(urllib.request.HTTPRedirectHandler):
    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        self._fetcher.check(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _chunks(response: http.client.HTTPResponse, url: str) -> Iterator[bytes]:
    try:
        while chunk := response.read(_CHUNK_BYTES):
            yield chunk
    except (OSError, http.client.HTTPException) as error:
        raise _missing(f"{url}: broke off: {error}") from error


def _announced_bytes(response: http.client.HTTPResponse, remote: Remote) -> int:
    announced = response.headers.get("Content-Length", "")
    return int(announced) if announced.isdecimal() else 0


def _missing(detail: str) -> RunFailed:
    return RunFailed("unsupported", "dataset_missing", detail)


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


def searched_folders(settings: Settings, name: str) -> str:
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


def choose_form(settings: Settings, kind: DataKind, forms: Forms[Data], fetcher: Fetcher | None = None) -> Data:
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
        _refuse_unknown_files(settings, forms)
    try:
        return _fetched(settings, forms, fetcher or Fetcher())
    except RunFailed as missing:
        if kind == "real":
            raise
        _refuse_unknown_files(settings, forms)
        return _fallback(forms, missing.detail if settings.download and forms.remotes else None)


def _real(forms: Forms[Data]) -> Data | None:
    try:
        return forms.real()
    except OSError as error:  # a folder that may not be looked into, a disk that fails
        raise DatasetDamaged(f"{forms.name}: can't be read: {error}") from error


def _refuse_unknown_files(settings: Settings, forms: Forms[Data]) -> None:
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


def _fallback(forms: Forms[Data], missing: str | None) -> Data:
    data = forms.synthetic() if forms.sample is None else forms.sample()
    if missing is None:
        return data
    notes = [note for note in (data.origin.note, f"not the real set: {missing}") if note]
    return replace(data, origin=data.origin.model_copy(update={"note": "; ".join(notes)}))
