from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from dyno.datasets.choice import Forms, choose, folders
from dyno.datasets.fetch import Fetcher, Remote
from dyno.datasets.kinds import DataKind
from dyno.errors import DatasetDamaged, RunFailed
from dyno.models.result import DataOrigin
from dyno.settings import Settings

NOWHERE = Remote("http://127.0.0.1:9/set.gz", "0" * 64, 1)


@dataclass(frozen=True)
class Loaded:
    origin: DataOrigin


def _of(kind: str) -> Loaded:
    return Loaded(DataOrigin.model_validate({"name": "x", "kind": kind, "train_samples": 1, "test_samples": 1}))


@dataclass
class Shop:
    """A set of which the real form is here or not, and of which a sample ships or not."""

    real: bool
    sample: bool

    def take(self, kind: DataKind, settings: Settings, *remotes: Remote) -> Loaded:
        forms = Forms(
            "x",
            real=lambda: _of("real") if self.real else None,
            sample=partial(_of, "sample") if self.sample else None,
            synthetic=partial(_of, "synthetic"),
            absent="nothing in x/",
            remotes=remotes,
        )
        return choose(settings, kind, forms, Fetcher(schemes=frozenset({"http"})))


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
def test_auto_is_real_else_the_sample_else_the_twin(real: bool, sample: bool, kind: DataKind, taken: str) -> None:
    assert Shop(real, sample).take(kind, Settings()).origin.kind == taken


@pytest.mark.parametrize(("kind", "complaint"), [("real", "nothing in x/"), ("sample", "no sample ships")])
def test_what_was_asked_for_by_name_is_never_replaced(kind: DataKind, complaint: str) -> None:
    with pytest.raises(RunFailed, match=complaint) as failed:
        Shop(real=False, sample=False).take(kind, Settings())
    assert (failed.value.failure_class, failed.value.reason) == ("unsupported", "dataset_missing")


def test_a_folder_that_may_not_be_read_is_not_passed_over() -> None:
    def denied() -> Loaded | None:
        raise PermissionError(13, "Permission denied", "/data/x")

    forms = Forms("x", real=denied, sample=partial(_of, "sample"), synthetic=partial(_of, "synthetic"), absent="")
    with pytest.raises(DatasetDamaged, match=r"x: can't be read: .*'/data/x'"):
        choose(Settings(), "auto", forms)


@pytest.mark.parametrize("kind", ["auto", "real"])
@pytest.mark.parametrize(
    ("there", "complaint"),
    [
        ("set.npz.part", r"x holds set\.npz\.part; nothing in x/"),
        ("unpacked/", "x holds unpacked; nothing in x/"),
        (None, "Not a directory"),
        ("->", "a link to nowhere; nothing in x/"),
    ],
)
def test_what_is_there_but_is_not_known_is_never_silently_replaced(
    tmp_path: Path, there: str | None, complaint: str, kind: DataKind
) -> None:
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


def test_an_empty_folder_or_a_hidden_file_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / ".gitkeep").touch()
    assert Shop(real=False, sample=True).take("auto", Settings(data_dir=tmp_path)).origin.kind == "sample"


def test_nothing_is_fetched_unless_the_settings_allow_it(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="DYNO_DOWNLOAD=1 would fetch it"):
        Shop(real=False, sample=True).take("real", Settings(data_dir=tmp_path), NOWHERE)
    assert Shop(real=False, sample=True).take("auto", Settings(data_dir=tmp_path), NOWHERE).origin.note is None


def test_without_a_network_real_fails_and_auto_says_what_it_took_instead(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, download=True)
    with pytest.raises(RunFailed, match=r"http://127\.0\.0\.1:9/set\.gz: can't be fetched"):
        Shop(real=False, sample=True).take("real", settings, NOWHERE)
    origin = Shop(real=False, sample=True).take("auto", settings, NOWHERE).origin
    assert origin.kind == "sample"
    assert origin.note is not None
    assert origin.note.startswith("not the real set: http://127.0.0.1:9/set.gz")
    assert list(tmp_path.iterdir()) == []


def test_the_data_folder_comes_before_keras_cache(tmp_path: Path, keras_home: Path) -> None:
    assert folders(Settings(data_dir=tmp_path), "x") == [tmp_path / "x", keras_home / "datasets" / "x"]
    assert folders(Settings(), "x") == [keras_home / "datasets" / "x"]
