import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dyno.bench.datasets import cifar10
from dyno.bench.datasets.image_sets import Images
from dyno.bench.registry import validate_params, workload
from dyno.bench.training.images import ImageTraining
from dyno.bench.workloads.cifar10_cnn import PHOTOGRAPHS
from dyno.errors import RunFailed
from dyno.models.result import DataOrigin
from tests.running import started

CIFAR = workload("cifar10_cnn")
TINY = {"jit_compile": False, "batch_size": 32, "epochs": 1, "train_samples": 64, "test_samples": 64}


def _trained(context, network=PHOTOGRAPHS, **params):
    asked = validate_params(CIFAR, TINY | params)
    training = started(ImageTraining(lambda params: network).build(asked, context))
    found = training.complete(0.0, 0.0)
    return found, training.verify().details


@pytest.fixture(scope="module")
def noise():
    """A few meaningless images: making the synthetic data takes seconds."""
    random = np.random.default_rng(1)
    images = random.integers(0, 256, (96, 32, 32, 3), dtype=np.uint8)
    labels = random.integers(0, 10, 96, dtype=np.uint8)
    origin = DataOrigin(name="noise", kind="synthetic", train_samples=64, test_samples=32)
    return Images(images[:64], labels[:64], images[64:], labels[64:], cifar10.CLASS_NAMES, origin)


@pytest.mark.verify
def test_an_image_is_recognised_alike_by_a_model_that_loads_the_weights_left(context, noise, tmp_path):
    network = replace(PHOTOGRAPHS, load=lambda settings, kind: noise)
    _, details = _trained(context(artifacts=tmp_path), network, test_samples=32, recognise=31)
    model = network.model(context().framework.keras, 1e-3, False)
    model.load_weights(tmp_path / "model.weights.h5")
    probabilities = model.predict(noise.test_images[-1:], verbose=0)[0]
    recognised = details["recognised"]
    assert (recognised["index"], recognised["label"]) == (31, noise.test_labels[-1])
    assert list(recognised["probabilities"]) == list(cifar10.CLASS_NAMES)
    assert list(recognised["probabilities"].values()) == pytest.approx(probabilities.tolist(), abs=1e-5)
    assert recognised["predicted"] == int(np.argmax(probabilities))


def test_an_image_that_the_data_found_lacks_fails_before_the_training(context, noise):
    network = replace(PHOTOGRAPHS, load=lambda settings, kind: noise)
    asked = validate_params(CIFAR, TINY | {"recognise": 32})
    with pytest.raises(RunFailed, match=r"test image 32 doesn't exist: noise \(synthetic\) has 32 here") as failed:
        ImageTraining(lambda params: network).build(asked, context())
    assert (failed.value.failure_class, failed.value.reason) == ("benchmark", "no_such_image")


def test_the_params_that_ran_are_those_of_the_data_found(context, noise):
    network = replace(PHOTOGRAPHS, load=lambda settings, kind: noise)
    asked = validate_params(CIFAR, TINY | {"train_samples": None, "test_samples": None, "jit_compile": "auto"})
    assert ImageTraining(lambda params: network).build(asked, context()).verify().params == {
        "jit_compile": False,
        "data": "synthetic",
        "train_samples": 64,
        "test_samples": 32,
    }


@pytest.mark.skipif("DYNO_DATA_DIR" not in os.environ, reason="DYNO_DATA_DIR names no folder with CIFAR-10's files")
def test_the_image_recognised_by_default_is_an_airplane(context):
    training, details = _trained(context(data_dir=Path(os.environ["DYNO_DATA_DIR"])), data="real")
    assert training.data.kind == "real"
    assert details["recognised"]["label_name"] == "airplane"
