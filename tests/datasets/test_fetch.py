from __future__ import annotations

import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dyno.datasets.fetch import Fetcher, Remote
from dyno.errors import DatasetDamaged, RunFailed

CONTENT = bytes(range(256)) * 20
FILES = {"/one.gz": CONTENT, "/two.gz": CONTENT[::-1], "/three.gz": b"three"}
OVER_HTTP = Fetcher(schemes=frozenset({"http"}), patience_s=5)


class _Files(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        content = FILES.get(self.path.removeprefix("/broken"))
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            self.end_headers()
        elif content is None:
            self.send_error(404)
        else:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[:1000] if self.path.startswith("/broken") else content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Files) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def _remote(address: str, content: bytes = CONTENT) -> Remote:
    return Remote(address, hashlib.sha256(content).hexdigest(), len(content))


def test_files_come_with_their_names_and_nothing_else_is_left(base: str, tmp_path: Path) -> None:
    remotes = [_remote(base + name, content) for name, content in FILES.items()]
    OVER_HTTP.into(tmp_path / "deep" / "set", remotes)
    assert {file.name: file.read_bytes() for file in (tmp_path / "deep" / "set").iterdir()} == {
        name[1:]: content for name, content in FILES.items()
    }
    assert [folder.name for folder in (tmp_path / "deep").iterdir()] == ["set"]


def test_a_redirect_within_the_trusted_schemes_is_followed(base: str, tmp_path: Path) -> None:
    OVER_HTTP.into(tmp_path / "set", [_remote(f"{base}/to/{base}/one.gz")])
    assert (tmp_path / "set" / "one.gz").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("path", "size_bytes", "error", "complaint"),
    [
        ("/two.gz", len(CONTENT), DatasetDamaged, "not the file as published"),
        ("/one.gz", len(CONTENT) - 1, DatasetDamaged, "more than the 5119 bytes"),
        ("/none.gz", len(CONTENT), RunFailed, "can't be fetched: HTTP Error 404"),
        ("/broken/one.gz", len(CONTENT), RunFailed, "broke off"),
        ("/to/ftp://127.0.0.1/one.gz", len(CONTENT), RunFailed, "ftp://127.0.0.1/one.gz: only http is trusted"),
    ],
)
def test_what_is_not_the_known_file_is_refused_and_nothing_is_left(
    base: str, tmp_path: Path, path: str, size_bytes: int, error: type[DatasetDamaged | RunFailed], complaint: str
) -> None:
    wanted = Remote(base + path, hashlib.sha256(CONTENT).hexdigest(), size_bytes)
    good = _remote(f"{base}/three.gz", b"three")
    with pytest.raises(error, match=complaint) as refused:
        OVER_HTTP.into(tmp_path / "set", [good, wanted])
    assert "://127.0.0.1" in refused.value.detail
    assert list(tmp_path.iterdir()) == []


def test_only_https_is_trusted(base: str, tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="only https is trusted"):
        Fetcher().into(tmp_path / "set", [_remote(f"{base}/one.gz")])


def test_a_set_that_takes_too_long_is_given_up(base: str, tmp_path: Path) -> None:
    hurried = Fetcher(schemes=frozenset({"http"}), deadline_s=0)
    with pytest.raises(RunFailed, match="not all there after 0 s"):
        hurried.into(tmp_path / "set", [_remote(f"{base}/one.gz")])


def test_a_folder_that_cannot_be_written_is_named(base: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(RunFailed, match="can't be written") as failed:
        OVER_HTTP.into(tmp_path / "file" / "set", [_remote(f"{base}/one.gz")])
    assert failed.value.reason == "dataset_missing"


def test_every_official_address_is_https_and_its_sum_is_known() -> None:
    from dyno.datasets import cifar10, fashion_mnist, imdb, mnist

    remotes = [*mnist.SET.remotes, *fashion_mnist.SET.remotes, cifar10.ARCHIVE, imdb.REMOTE]
    for remote in remotes:
        Fetcher().check(remote.url)
        assert len(bytes.fromhex(remote.sha256)) == 32
        assert remote.size_bytes > 1000
