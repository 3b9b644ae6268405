"""Tiny Shakespeare: 1,115,394 ASCII characters of plays. Dyno ships the complete data set, so `auto` is always real.

`<data_dir>/tinyshakespeare/input.txt` has priority and must match the published content. The shipped file is identical,
so its origin is `real` too, and `sample` means the same text. A. Karpathy, char-rnn (MIT).
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dyno.bench.datasets.loading import DataKind, Forms, choose_form, folders
from dyno.errors import DatasetDamaged
from dyno.models.result import DataOrigin
from dyno.settings import Settings

NAME = "tinyshakespeare"
CHARACTERS = 1_115_394
TRAIN_CHARACTERS = CHARACTERS * 9 // 10  # the first 90 %; the rest is held out
SAMPLE_FOLDER = Path(__file__).parent / "samples" / NAME
PUBLISHED = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
_FILE = "input.txt"


@dataclass(frozen=True)
class Text:
    """`ids` uint8 (characters,): the bytes of the text; the first `train_count` of them are for training."""

    ids: NDArray[np.uint8]
    origin: DataOrigin
    train_count: int


def load(settings: Settings, kind: DataKind = "auto") -> Text:
    """Load the text of that kind. Raises DatasetDamaged with the file's name."""
    forms = Forms(
        NAME,
        real=lambda: _real(settings),
        sample=lambda: _read(SAMPLE_FOLDER / _FILE),
        synthetic=_synthetic,
        absent="",  # the shipped file is always available
    )
    return choose_form(settings, kind, forms)


def _real(settings: Settings) -> Text:
    paths = [folder / _FILE for folder in folders(settings, NAME)]
    return _read(next((path for path in paths if path.exists()), SAMPLE_FOLDER / _FILE))


def _read(path: Path) -> Text:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DatasetDamaged(f"{path}: {error}") from error
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != PUBLISHED:
        raise DatasetDamaged(f"{path}: not the published Tiny Shakespeare: sha256 {sha256}, expected {PUBLISHED}")
    return _text(np.frombuffer(content, np.uint8), "real", {_FILE: sha256})


def _synthetic() -> Text:
    """A learnable Markov chain as long as the real text: one of four characters follows each of 32 characters."""
    random = np.random.Generator(np.random.SFC64(len(NAME)))
    alphabet = np.frombuffer(b" abcdefghijklmnopqrstuvwxyz,.;!\n", np.uint8)
    following = np.argsort(random.random((len(alphabet), len(alphabet))), axis=1)[:, :4].tolist()
    choices = random.choice(4, CHARACTERS, p=(0.6, 0.2, 0.15, 0.05)).tolist()
    state, states = 0, []
    for choice in choices:
        state = following[state][choice]
        states.append(state)
    return _text(alphabet[states], "synthetic", {})


def _text(ids: NDArray[np.uint8], kind: Literal["real", "synthetic"], sha256: dict[str, str]) -> Text:
    held_out = len(ids) - TRAIN_CHARACTERS
    origin = DataOrigin(name=NAME, kind=kind, sha256=sha256, train_samples=TRAIN_CHARACTERS, test_samples=held_out)
    return Text(ids, origin, TRAIN_CHARACTERS)
