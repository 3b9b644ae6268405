"""Choose the source of a data set: real files, a download, the shipped sample or synthetic data.

DYNO_DOWNLOAD=1 allows downloads from the data set's official address. Downloads and redirects use https only, and files
must have the known size and SHA-256. A download installs all files or none.
"""

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

# auto: the real data set if available, else the shipped sample, else synthetic data
DataKind = Literal["auto", "real", "sample", "synthetic"]
UnsampledKind = Literal["auto", "real", "synthetic"]  # for data sets without a licence that allows shipping a sample
SAMPLED = "auto: the real data set if the worker has it, else the shipped sample or synthetic data"
UNSAMPLED = "auto: the real data set if the worker has it, else synthetic data; Dyno ships no sample"


_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Remote:
    """One file at its official address, with its exact size."""

    url: str
    sha256: str
    size_bytes: int

    @property
    def name(self) -> str:
        return PurePosixPath(urlsplit(self.url).path).name


@dataclass(frozen=True)
class Fetcher:
    """Downloads files. Only tests against a local server use `schemes` other than https."""

    schemes: frozenset[str] = frozenset({"https"})
    patience_s: float = 15.0  # timeout if no byte arrives
    deadline_s: float = 240.0  # for all files of a data set; shorter than the stall timeout of a silent runner

    def into(self, folder: Path, remotes: Sequence[Remote]) -> None:
        """Download all `remotes` into `folder`, or none of them.

        Raises RunFailed (unsupported, dataset_missing) with the address that failed, and DatasetDamaged if an address
        returns a file with another size or SHA-256.
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
        except OSError as error:  # a full disk, a read-only folder
            raise _missing(f"{folder}: can't be written: {error}") from error

    def _fetch(self, remote: Remote, path: Path, by_s: float) -> None:
        digest, size_bytes = hashlib.sha256(), 0
        with self._opened(remote.url) as response, path.open("xb") as file:
            for chunk in _chunks(response, remote.url):
                digest.update(chunk)
                size_bytes += file.write(chunk)
                if size_bytes > remote.size_bytes:
                    raise DatasetDamaged(f"{remote.url}: larger than the published {remote.size_bytes} bytes")
                if time.monotonic() > by_s:
                    raise _missing(f"{remote.url}: download incomplete after {self.deadline_s:g} s")
            if size_bytes < (announced_bytes := _announced_bytes(response, remote)):
                raise _missing(f"{remote.url}: connection closed after {size_bytes} of {announced_bytes} bytes")
        if digest.hexdigest() != remote.sha256:
            raise DatasetDamaged(
                f"{remote.url}: not the published file: sha256 {digest.hexdigest()}, expected {remote.sha256}"
            )

    @contextlib.contextmanager
    def _opened(self, url: str) -> Iterator[http.client.HTTPResponse]:
        self.check(url)
        opener = urllib.request.build_opener(_Redirects(self))
        try:
            response = opener.open(url, timeout=self.patience_s)
        except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
            raise _missing(f"{url}: download failed: {error}") from error
        with response:
            yield response

    def check(self, url: str) -> None:
        """Raises RunFailed if the address has a scheme that isn't allowed."""
        if urlsplit(url).scheme not in self.schemes:
            raise _missing(f"{url}: only {', '.join(sorted(self.schemes))} is allowed")


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
        raise _missing(f"{url}: connection lost: {error}") from error


def _announced_bytes(response: http.client.HTTPResponse, remote: Remote) -> int:
    announced = response.headers.get("Content-Length", "")
    return int(announced) if announced.isdecimal() else 0


def _missing(detail: str) -> RunFailed:
    return RunFailed("unsupported", "dataset_missing", detail)


class Loaded(Protocol):
    """The return type of every loader: a dataclass that records the origin of its content."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def origin(self) -> DataOrigin: ...


_NAMED = 5  # maximum number of folder entries in an error message

Data = TypeVar("Data", bound=Loaded)


def keras_cache() -> Path:
    """The folder where `keras.datasets` stores its downloads."""
    home = os.environ.get("KERAS_HOME")
    return (Path(home) if home else Path.home() / ".keras") / "datasets"


def folders(settings: Settings, name: str) -> list[Path]:
    """The folders to search for the real files of data set `name`, in order. They need not exist."""
    roots = [settings.data_dir] if settings.data_dir else []
    return [root / name for root in (*roots, keras_cache())]


def searched_folders(settings: Settings, name: str) -> str:
    """The result of `folders`, formatted for an error message."""
    unset = "" if settings.data_dir else " (DYNO_DATA_DIR is unset)"
    return " and ".join(f"{folder}/" for folder in folders(settings, name)) + unset


@dataclass(frozen=True)
class Forms(Generic[Data]):
    """The available forms of data set `name`.

    `real` returns None if no file of the real data set exists. `sample` is None if Dyno ships no sample. `absent`: the
    error message that lists the searched files. `remotes`: the files of the real data set, if their addresses and
    checksums are known.
    """

    name: str
    real: Callable[[], Data | None]
    sample: Callable[[], Data] | None
    synthetic: Callable[[], Data]
    absent: str
    remotes: Sequence[Remote] = ()


def choose_form(settings: Settings, kind: DataKind, forms: Forms[Data], fetcher: Fetcher | None = None) -> Data:
    """Load the data of that kind; `auto` is real (downloaded if the settings allow it), else sample, else synthetic.

    If the data set's folder contains only unknown files, `auto` doesn't fall back, because files may be missing. If a
    download for `auto` fails, the origin's note gives the reason. Raises DatasetDamaged for an invalid file or folder,
    and RunFailed (unsupported, dataset_missing).
    """
    if kind == "synthetic":
        return forms.synthetic()
    if kind == "sample":
        if forms.sample is None:
            raise RunFailed(
                "unsupported", "dataset_missing", f"Dyno ships no sample of {forms.name}, because no licence allows it"
            )
        return forms.sample()
    real = _real(forms)
    if real is not None:
        return real
    if not (settings.download and forms.remotes):  # a download would add missing files
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
    except OSError as error:  # an unreadable folder, a disk failure
        raise DatasetDamaged(f"{forms.name}: can't be read: {error}") from error


def _refuse_unknown_files(settings: Settings, forms: Forms[Data]) -> None:
    """Raises DatasetDamaged if a folder of the data set contains only unknown files, or is a dangling link."""
    for folder in folders(settings, forms.name):
        try:
            held = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
        except FileNotFoundError:
            if folder.is_symlink():
                raise DatasetDamaged(f"{folder} is a dangling link; {forms.absent}") from None
            continue
        except OSError as error:
            raise DatasetDamaged(f"{forms.name}: can't be read: {error}") from error
        if held:
            raise DatasetDamaged(f"{folder} contains {', '.join(held[:_NAMED])}; {forms.absent}")


def _fetched(settings: Settings, forms: Forms[Data], fetcher: Fetcher) -> Data:
    if settings.download and forms.remotes:
        fetcher.into(folders(settings, forms.name)[0], forms.remotes)
        real = _real(forms)
        if real is not None:
            return real
    hint = "" if settings.download or not forms.remotes else "; set DYNO_DOWNLOAD=1 to download it"
    raise RunFailed("unsupported", "dataset_missing", forms.absent + hint)


def _fallback(forms: Forms[Data], missing: str | None) -> Data:
    data = forms.synthetic() if forms.sample is None else forms.sample()
    if missing is None:
        return data
    notes = [note for note in (data.origin.note, f"not the real data set: {missing}") if note]
    return replace(data, origin=data.origin.model_copy(update={"note": "; ".join(notes)}))
