import shutil

import numpy as np
import pytest

from dyno.bench.datasets import shakespeare
from dyno.errors import DatasetDamaged
from dyno.settings import Settings


@pytest.mark.parametrize("kind", ["auto", "real", "sample"])
def test_the_whole_set_ships_so_it_is_real_wherever_it_lies(kind):
    text = shakespeare.load(Settings(), kind)
    assert text.origin.kind == "real"
    assert text.ids.tobytes().startswith(b"First Citizen:\n")
    assert (len(text.ids), len(np.unique(text.ids))) == (1_115_394, 65)
    assert text.train_count == text.origin.train_samples == 1_003_854
    assert text.origin.train_samples + text.origin.test_samples == len(text.ids)


def test_the_file_of_the_data_folder_comes_first_and_must_be_the_one_published(tmp_path):
    folder = tmp_path / "tinyshakespeare"
    shutil.copytree(shakespeare.SAMPLE_FOLDER, folder)
    assert shakespeare.load(Settings(data_dir=tmp_path)).origin.kind == "real"
    file = folder / "input.txt"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DatasetDamaged, match="not the published Tiny Shakespeare") as damaged:
        shakespeare.load(Settings(data_dir=tmp_path))
    assert str(file) in damaged.value.detail


def test_the_twin_is_as_long_always_the_same_and_its_next_character_can_be_guessed():
    text, again = (shakespeare.load(Settings(), "synthetic") for _ in range(2))
    assert text.origin.kind == "synthetic"
    assert (text.ids == again.ids).all()
    assert len(text.ids) == 1_115_394
    pairs = np.zeros((256, 256), np.int64)
    np.add.at(pairs, (text.ids[: text.train_count - 1], text.ids[1 : text.train_count]), 1)
    held_out = text.ids[text.train_count :]
    guessed = pairs.argmax(axis=1)[held_out[:-1]] == held_out[1:]
    assert guessed.mean() > 0.5
