"""Trainings beside `model.fit`: what is measured, what is kept of it, what the page makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.files import Files
from benchmarks.trainings import PAIRS_EACH, PROCESSES, SETUPS, Setup, Taken, kept, lines, take
from dyno.frameworks.tensorflow import TensorFlow
from dyno.workloads import registry, validate_params
from dyno.workloads.training.model_training import TrainingParams

TINY = Setup({"batch_size": 8, "train_samples": 16}, 2, "16 digits")
CHOICES = {
    "dyno": {"chosen": False, "how": "measured", "batch_size": 8, "step_s": {"false": 0.001, "true": 0.02}},
    "fit": {"chosen": True, "how": "not tried"},
}


class Asked:
    """Answers so many times without measuring, and remembers what it was asked."""

    def __init__(self, times: int = 2) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.times = times

    def __call__(self, module: str, *arguments: str) -> dict[str, Any]:
        if len(self.calls) == self.times:
            raise KeyboardInterrupt
        self.calls.append((module, *arguments))
        return CHOICES if module == "choices" else run([1e-3] * PAIRS_EACH, [1e-3] * PAIRS_EACH)


def run(dyno: list[float], fit: list[float]) -> dict[str, Any]:
    return {"dyno": dyno, "fit": fit, "data": "sample"}


def row(taken: Taken) -> list[str]:
    [found] = [line for line in lines({"tiny": TINY}, {"tiny": taken}) if line.startswith("| `tiny`")]
    return [cell.strip() for cell in found.strip("|").split("|")]


@pytest.mark.parametrize("name", SETUPS)
def test_an_epoch_of_each_workload_is_that_many_full_batches(name: str) -> None:
    setup, workload = SETUPS[name], registry()[name]
    params = validate_params(workload, dict(setup.params))
    assert isinstance(params, TrainingParams)
    samples = getattr(params, "train_samples", None) or getattr(params, "images", None)
    assert (samples or params.batch_size * getattr(params, "steps_per_epoch", 0)) == setup.samples


@pytest.mark.verify
def test_both_are_timed_in_turns_on_the_same_work(tensorflow: TensorFlow) -> None:
    from benchmarks.model_fit import side_by_side

    found = side_by_side("mnist_cnn", TINY, 1, dyno_jit=False, fit_jit=False)
    assert len(found["dyno"]) == len(found["fit"]) == 1
    assert min(found["dyno"] + found["fit"]) > 0


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    files, asked = Files(tmp_path), Asked()
    with pytest.raises(KeyboardInterrupt):
        take("tiny", TINY, files, asked)
    assert asked.calls == [("choices", "tiny"), ("side_by_side", "tiny", str(PAIRS_EACH), "0", "1")]
    again = Asked(PROCESSES)
    take("tiny", TINY, files, again)
    assert len(again.calls) == PROCESSES - 1
    assert len(kept("tiny", TINY, files).runs) == PROCESSES


def test_another_size_is_measured_anew(tmp_path: Path) -> None:
    files = Files(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        take("tiny", TINY, files, Asked())
    assert len(kept("tiny", TINY, files).runs) == 1
    assert kept("tiny", Setup(TINY.params, 3, ""), files) == Taken()


def test_the_ratio_rests_on_one_figure_of_each_process() -> None:
    alike = [run([1e-3, 2e-3, 3e-3], [2e-3] * 3), run([1.9e-3, 2e-3, 2.1e-3], [2e-3] * 3)]
    cells = row(Taken(CHOICES, alike))
    assert cells[:7] == ["`tiny`", "false, true", "2,000", "2,000", "1.000", "1.000 to 1.000", "1.000"]
    assert cells[7:] == ["6 (0), too few", "1.000, 1.000"]
    apart = row(Taken(CHOICES, [run([1e-3] * 9, [1e-3] * 9), run([1.1e-3] * 9, [1e-3] * 9)]))
    low, high = map(float, apart[5].split(" to "))
    assert low < 0.8, "two processes that differ leave much open, however many pairs they took"
    assert high > 1.3


def test_pairs_of_fits_slow_mode_are_left_out() -> None:
    taken = Taken(CHOICES, [run([1e-3, 1e-3, 1.01e-3], [1e-3, 1.4e-3, 1e-3]), run([1e-3], [1.2e-3])])
    assert taken.left_out == 1
    assert row(taken)[7] == "3 (1), too few"
