"""What a person reads: scaled units, and unknown figures said to be unknown."""

from __future__ import annotations

import pytest
from rich.console import Console

from dyno.render import _training, quantity
from dyno.result import DataOrigin, Training, Trial


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.58e14, "FLOP/s", "158 TFLOP/s"),
        (1.5e11, "FLOP/s", "150 GFLOP/s"),
        (0.000182, "s", "182 µs"),
        (1.5, "s", "1.5 s"),
        (999.96, "s", "1000 s"),
        (0.0, "s", "0 s"),
        (3e-12, "s", "3e-12 s"),
        (2404.4, "samples/s", "2,404 samples/s"),
        (1234567.8, "samples/s", "1,234,568 samples/s"),
        (None, "s", "–"),
    ],
)
def test_a_quantity_gets_the_prefix_that_fits(value: float | None, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


@pytest.mark.parametrize(
    ("wrong", "by_trial", "text"),
    [
        (20, [], "accuracy 80.0% on 100 test samples, 20 wrong"),
        (None, [25, 15], "accuracy 80.0% on 100 test samples, mean of 2 trials (25, 15 wrong)"),
        (None, [], "accuracy 80.0% on 100 test samples"),
    ],
)
def test_how_many_were_wrong_is_told_of_each_trial(wrong: int | None, by_trial: list[int], text: str) -> None:
    console = Console(record=True, width=200)
    data = DataOrigin(name="line", kind="real", train_samples=1, test_samples=100)
    trials = [Trial(seed=seed, epochs=1, loss=1.0, wrong=count) for seed, count in enumerate(by_trial)]
    _training(console, Training(epochs=[], seed=0, data=data, accuracy=0.8, wrong=wrong, trials=trials))
    assert text in console.export_text().splitlines()
