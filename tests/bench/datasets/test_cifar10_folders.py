import zlib

import numpy as np
import pytest
from PIL import Image

from dyno.bench.datasets import cifar10
from dyno.errors import DatasetDamaged
from dyno.settings import Settings


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "data" / "cifar10"
    path.mkdir(parents=True)
    return path


def _load(folder):
    return cifar10.load(Settings(data_dir=folder.parent))


def _pictures(folder, ending, classes=cifar10.CLASS_NAMES):
    for part, count in (("train", 3), ("test", 2)):
        for label, name in enumerate(classes):
            (folder / part / name).mkdir(parents=True)
            for index in range(count):
                colour = np.full((32, 32, 3), (label * 20, index * 60, 100), np.uint8)
                Image.fromarray(colour).save(folder / part / name / f"{index:04}.{ending}")


@pytest.mark.parametrize(("ending", "off_by"), [("png", 0), ("jpg", 4)])
def test_folders_of_pictures_are_read_class_by_class_in_turn(folder, ending, off_by):
    _pictures(folder, ending)
    data = _load(folder)
    assert data.train_labels.tolist() == [*range(10)] * 3
    assert (data.origin.train_samples, data.origin.test_samples) == (30, 20)
    assert np.abs(data.train_images[13, 0, 0].astype(int) - (60, 60, 100)).max() <= off_by
    assert "may differ from the published pixels" in (data.origin.note or "")
    assert "30 of 50,000 for training, 20 of 10,000 for testing" in (data.origin.note or "")
    before = data.origin.sha256["train/"]
    (folder / "train" / "cat" / f"0000.{ending}").rename(folder / "train" / "cat" / f"0009.{ending}")
    assert _load(folder).origin.sha256["train/"] != before


def test_pictures_in_the_data_folder_go_before_batches_in_keras_s_cache(folder, keras_home):
    _pictures(folder, "png")
    cached = keras_home / "datasets" / "cifar10"
    cached.mkdir(parents=True)
    (cached / "data_batch_1.bin").write_bytes(b"no batch")
    assert _load(folder).origin.train_samples == 30


def test_a_class_without_pictures_or_a_damaged_picture_is_named(folder):
    _pictures(folder, "png", cifar10.CLASS_NAMES[:-1])
    with pytest.raises(DatasetDamaged, match="truck: incomplete"):
        _load(folder)
    (folder / "train" / "truck").mkdir()
    picture = folder / "train" / "truck" / "0001.png"
    whole = (folder / "train" / "cat" / "0000.png").read_bytes()
    for content in (whole[:60], b""):
        picture.write_bytes(content)
        with pytest.raises(DatasetDamaged, match=r"0001\.png: can't be read as a picture"):
            _load(folder)
    Image.new("RGB", (31, 32)).save(picture)
    with pytest.raises(DatasetDamaged, match=r"0001\.png: \(32, 31, 3\)"):
        _load(folder)


def test_a_picture_that_claims_to_be_enormous_is_damaged_and_named(folder):
    _pictures(folder, "png")
    spoilt = folder / "train" / "cat" / "0000.png"
    content = spoilt.read_bytes()
    header = b"IHDR" + (65_535).to_bytes(4, "big") * 2 + content[24:29]
    spoilt.write_bytes(content[:12] + header + zlib.crc32(header).to_bytes(4, "big") + content[33:])
    with pytest.raises(DatasetDamaged, match=r"cat/0000\.png: can't be read as a picture: Image size"):
        _load(folder)
