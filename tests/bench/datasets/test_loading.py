import hashlib
import http.server
import threading
from dataclasses import dataclass
from functools import partial

import pytest

from dyno.bench.datasets.loading import Fetcher, Forms, Remote, choose_form, folders
from dyno.errors import DatasetDamaged, RunFailed
from dyno.models.result import DataOrigin
from dyno.settings import Settings

CONTENT = bytes(range(256)) * 20
FILES = {"/one.gz": CONTENT, "/two.gz": CONTENT[::-1], "/three.gz": b"three"}
OVER_HTTP = Fetcher(schemes=frozenset({"http"}), patience_s=5)


class _Files(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
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

    def log_message(self, format, *arguments):
        """Log nothing."""


@pytest.fixture(scope="module")
def base():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Files) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def _remote(address, content=CONTENT):
    return Remote(address, hashlib.sha256(content).hexdigest(), len(content))


def test_files_come_with_their_names_and_nothing_else_is_left(base, tmp_path):
    remotes = [_remote(base + name, content) for name, content in FILES.items()]
    OVER_HTTP.into(tmp_path / "deep" / "set", remotes)
    assert {file.name: file.read_bytes() for file in (tmp_path / "deep" / "set").iterdir()} == {
        name[1:]: content for name, content in FILES.items()
    }
    assert [folder.name for folder in (tmp_path / "deep").iterdir()] == ["set"]


def test_a_redirect_within_the_trusted_schemes_is_followed(base, tmp_path):
    OVER_HTTP.into(tmp_path / "set", [_remote(f"{base}/to/{base}/one.gz")])
    assert (tmp_path / "set" / "one.gz").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("path", "size_bytes", "error", "complaint"),
    [
        ("/two.gz", len(CONTENT), DatasetDamaged, "not the published file"),
        ("/one.gz", len(CONTENT) - 1, DatasetDamaged, "larger than the published 5119 bytes"),
        ("/none.gz", len(CONTENT), RunFailed, "download failed: HTTP Error 404"),
        ("/broken/one.gz", len(CONTENT), RunFailed, "connection closed"),
        ("/to/ftp://127.0.0.1/one.gz", len(CONTENT), RunFailed, "ftp://127.0.0.1/one.gz: only http is allowed"),
    ],
)
def test_an_unexpected_file_is_refused_and_removed(base, tmp_path, path, size_bytes, error, complaint):
    wanted = Remote(base + path, hashlib.sha256(CONTENT).hexdigest(), size_bytes)
    good = _remote(f"{base}/three.gz", b"three")
    with pytest.raises(error, match=complaint) as refused:
        OVER_HTTP.into(tmp_path / "set", [good, wanted])
    assert "://127.0.0.1" in refused.value.detail
    assert list(tmp_path.iterdir()) == []


def test_only_https_is_trusted(base, tmp_path):
    with pytest.raises(RunFailed, match="only https is allowed"):
        Fetcher().into(tmp_path / "set", [_remote(f"{base}/one.gz")])


def test_a_set_that_takes_too_long_is_given_up(base, tmp_path):
    hurried = Fetcher(schemes=frozenset({"http"}), deadline_s=0)
    with pytest.raises(RunFailed, match="download incomplete after 0 s"):
        hurried.into(tmp_path / "set", [_remote(f"{base}/one.gz")])


def test_a_folder_that_cannot_be_written_is_named(base, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(RunFailed, match="can't be written") as failed:
        OVER_HTTP.into(tmp_path / "file" / "set", [_remote(f"{base}/one.gz")])
    assert failed.value.reason == "dataset_missing"


def test_every_official_address_is_https_and_its_sum_is_known():
    from dyno.bench.datasets import cifar10, fashion_mnist, imdb, mnist

    remotes = [*mnist.SET.remotes, *fashion_mnist.SET.remotes, cifar10.ARCHIVE, imdb.REMOTE]
    for remote in remotes:
        Fetcher().check(remote.url)
        assert len(bytes.fromhex(remote.sha256)) == 32
        assert remote.size_bytes > 1000


NOWHERE = Remote("http://127.0.0.1:9/set.gz", "0" * 64, 1)


@dataclass(frozen=True)
class Loaded:
    origin: DataOrigin


def _of(kind):
    return Loaded(DataOrigin.model_validate({"name": "x", "kind": kind, "train_samples": 1, "test_samples": 1}))


@dataclass
class Shop:
    """A data set with or without real files and with or without a sample."""

    real: bool
    sample: bool

    def take(self, kind, settings, *remotes):
        forms = Forms(
            "x",
            real=lambda: _of("real") if self.real else None,
            sample=partial(_of, "sample") if self.sample else None,
            synthetic=partial(_of, "synthetic"),
            absent="nothing in x/",
            remotes=remotes,
        )
        return choose_form(settings, kind, forms, Fetcher(schemes=frozenset({"http"})))


@pytest.mark.parametrize(
    ("real", "sample", "kind", "taken"),
    [
        (True, True, "auto", "real"),
        (True, True, "sample", "sample"),
        (True, True, "synthetic", "synthetic"),
        (False, True, "auto", "sample"),
        (False, False, "auto", "synthetic"),
        (True, False, "real", "real"),
    ],
)
def test_auto_is_real_else_the_sample_else_the_twin(real, sample, kind, taken):
    assert Shop(real, sample).take(kind, Settings()).origin.kind == taken


@pytest.mark.parametrize(("kind", "complaint"), [("real", "nothing in x/"), ("sample", "ships no sample")])
def test_an_explicitly_requested_kind_is_never_replaced(kind, complaint):
    with pytest.raises(RunFailed, match=complaint) as failed:
        Shop(real=False, sample=False).take(kind, Settings())
    assert (failed.value.failure_class, failed.value.reason) == ("unsupported", "dataset_missing")


def test_a_folder_that_may_not_be_read_is_not_passed_over():
    def denied():
        raise PermissionError(13, "Permission denied", "/data/x")

    forms = Forms("x", real=denied, sample=partial(_of, "sample"), synthetic=partial(_of, "synthetic"), absent="")
    with pytest.raises(DatasetDamaged, match=r"x: can't be read: .*'/data/x'"):
        choose_form(Settings(), "auto", forms)


@pytest.mark.parametrize("kind", ["auto", "real"])
@pytest.mark.parametrize(
    ("there", "complaint"),
    [
        ("set.npz.part", r"x contains set\.npz\.part; nothing in x/"),
        ("unpacked/", "x contains unpacked; nothing in x/"),
        (None, "Not a directory"),
        ("->", "a dangling link; nothing in x/"),
    ],
)
def test_unknown_files_are_never_silently_replaced(tmp_path, there, complaint, kind):
    folder = tmp_path / "x"
    if there is None:
        folder.touch()
    elif there == "->":
        folder.symlink_to(tmp_path / "gone")
    else:
        folder.mkdir()
        (folder / there).mkdir() if there.endswith("/") else (folder / there).touch()
    with pytest.raises(DatasetDamaged, match=complaint):
        Shop(real=False, sample=True).take(kind, Settings(data_dir=tmp_path))


def test_an_empty_folder_or_a_hidden_file_is_nothing(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / ".gitkeep").touch()
    assert Shop(real=False, sample=True).take("auto", Settings(data_dir=tmp_path)).origin.kind == "sample"


def test_nothing_is_fetched_unless_the_settings_allow_it(tmp_path):
    with pytest.raises(RunFailed, match="set DYNO_DOWNLOAD=1 to download it"):
        Shop(real=False, sample=True).take("real", Settings(data_dir=tmp_path), NOWHERE)
    assert Shop(real=False, sample=True).take("auto", Settings(data_dir=tmp_path), NOWHERE).origin.note is None


def test_without_a_network_real_fails_and_auto_notes_its_fallback(tmp_path):
    settings = Settings(data_dir=tmp_path, download=True)
    with pytest.raises(RunFailed, match=r"http://127\.0\.0\.1:9/set\.gz: download failed"):
        Shop(real=False, sample=True).take("real", settings, NOWHERE)
    origin = Shop(real=False, sample=True).take("auto", settings, NOWHERE).origin
    assert origin.kind == "sample"
    assert origin.note.startswith("not the real data set: http://127.0.0.1:9/set.gz")
    assert list(tmp_path.iterdir()) == []


def test_the_data_folder_comes_before_keras_cache(tmp_path, keras_home):
    assert folders(Settings(data_dir=tmp_path), "x") == [tmp_path / "x", keras_home / "datasets" / "x"]
    assert folders(Settings(), "x") == [keras_home / "datasets" / "x"]
