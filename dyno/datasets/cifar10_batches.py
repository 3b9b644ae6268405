"""CIFAR-10's batches: binary or pickled, loose, packed or in the published archive.

A binary batch is so many records of 1 label byte and 3,072 bytes: 1,024 red, green, blue, row by row. The pickled ones
hold the same in the same order, so each batch, whatever its form, is recognised by the sha256 of its records.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dyno.datasets import cifar10_files
from dyno.datasets.images import Images
from dyno.errors import DatasetDamaged
from dyno.models.result import DataOrigin

SIDE = 32
CHANNELS = 3
RECORD_BYTES = 1 + CHANNELS * SIDE * SIDE
BATCH = 10_000
FIRST = 1_000  # records of the test batch's first part
TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST, TEST_FIRST = "test_batch", "test_batch_first1000"
# sha256 of the records of each batch: those of the published binary files, and of the first 1,000 of the test batch
PUBLISHED = {
    "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    "test_batch_first1000": "8314c96d7cd65618193bab23acdd5d4c4af15bf6dd00a1781d55beedf3be1ef5",
}


@dataclass(frozen=True)
class _Batch:
    name: str
    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]
    sha256: str


def from_folder(folder: Path, classes: tuple[str, ...]) -> Images | None:
    """The batches in `folder`, or None where there is none. Raises DatasetDamaged, naming the file."""
    found = cifar10_files.find(folder)
    train = [_batch(name, *found[name]) for name in TRAIN if name in found]
    tests = [_batch(name, *found[name]) for name in (TEST, TEST_FIRST) if name in found][:1]
    if not train and not tests:
        return None
    if not train or not tests:
        raise DatasetDamaged(f"{folder}: incomplete, without any {'test' if train else 'training'} batch of CIFAR-10")
    test = tests[0]
    train_labels = np.concatenate([batch.labels for batch in train])
    origin = DataOrigin(
        name="cifar10",
        kind="real",
        sha256={f"{batch.name}.bin": batch.sha256 for batch in (*train, test)},
        train_samples=len(train_labels),
        test_samples=len(test.labels),
        note=_note(len(train), test),
    )
    return Images(
        np.concatenate([batch.images for batch in train]), train_labels, test.images, test.labels, classes, origin
    )


def _batch(name: str, path: Path, records: bytes) -> _Batch:
    """Checks that these are the records of the batch `name`."""
    samples = FIRST if name == TEST_FIRST else BATCH
    if len(records) != samples * RECORD_BYTES:
        raise DatasetDamaged(f"{path}: {len(records)} bytes, not {samples} records of {RECORD_BYTES}")
    sha256 = hashlib.sha256(records).hexdigest()
    if sha256 != PUBLISHED[name]:
        expected = PUBLISHED[name]
        raise DatasetDamaged(f"{path}: not CIFAR-10's {name} as published: sha256 {sha256}, not {expected}")
    table = np.frombuffer(records, np.uint8).reshape(samples, RECORD_BYTES)
    planes = table[:, 1:].reshape(samples, CHANNELS, SIDE, SIDE)
    return _Batch(name, np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), table[:, 0].copy(), sha256)


def _note(batches: int, test: _Batch) -> str | None:
    parts = [f"{batches} of {len(TRAIN)} training batches"] if batches < len(TRAIN) else []
    if test.name == TEST_FIRST:
        parts.append(f"first {len(test.labels):,} test images")
    return "; ".join(parts) or None
