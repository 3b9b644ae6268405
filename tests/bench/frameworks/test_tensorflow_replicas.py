"""Four replicas on virtual CPU devices train like one, in a separate process (see `replicated`)."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bench.frameworks.replicated import trained

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.verify


@pytest.fixture(scope="module")
def four():
    command = [sys.executable, "-m", "tests.bench.frameworks.replicated", "4"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@pytest.fixture(scope="module")
def one(tensorflow):
    return trained(tensorflow)


def test_four_replicas_share_each_batch_and_have_the_loss_of_one(one, four):
    assert (one["replicas"], four["replicas"]) == (1, 4)
    assert four["losses"][:3] == pytest.approx(one["losses"][:3], rel=1e-4)


def test_a_tail_omits_samples_that_do_not_divide(one, four):
    # The epoch is one step of 16 samples and the 54 others, of which four replicas share 52.
    for found, seen in ((one, 70), (four, 68)):
        right = found["epoch"]["accuracy"] * seen
        assert right == pytest.approx(round(right), abs=1e-3)
        assert found["epoch"]["loss"] == pytest.approx(found["losses"][-1], rel=1e-4)


def test_several_steps_in_one_call_train_as_single_ones_do(four):
    assert four["in_calls_of_two"] == pytest.approx(four["losses"][:2], rel=1e-4)


def test_six_inputs_are_predicted_over_four_replicas(one, four):
    predicted = np.array(four["predicted"])
    assert predicted.shape == (6, 3)
    np.testing.assert_allclose(predicted.sum(-1), 1, rtol=1e-5)
    assert len(four["all"]) == len(one["all"]) == 70
    assert predicted.argmax(-1).tolist() == four["all"][:6]


def test_unsupported_options_are_refused_over_replicas(four):
    assert four["refusals"] == ["jit_over_replicas", "too_few_samples"]
