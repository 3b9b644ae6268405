"""Fetches data sets that are not here from their official addresses, where DYNO_DOWNLOAD=1 allows it.

A file is taken only over https (redirects too), only up to a size known beforehand, and only with the sum known
beforehand; it appears under its name complete or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import urlsplit

from dyno.errors import DatasetDamaged, RunFailed

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
