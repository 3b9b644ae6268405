"""`python -m benchmarks [NAME …]`: run the named benchmarks, or all of Dyno's speed. Options behind are `trainings`'.

`method` stands for those of the method: whether its figures are right. They want an idle machine, an hour and a half.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks import alarms, cost, coverage, matmul, mnist_cnn, plain_step, repeatability, resampled, scatter, start
from benchmarks.settings import USAGE, checked
from benchmarks.trainings import __main__ as trainings

asked = sys.argv[1:]
first_option = next((place for place, word in enumerate(asked) if word.startswith("-")), len(asked))
options = asked[first_option:]
SPEED: dict[str, Callable[[], None]] = {
    "start": start.main,
    "matmul": matmul.main,
    "mnist_cnn": mnist_cnn.main,
    "trainings": lambda: trainings.main(options),
}
METHOD: dict[str, Callable[[], None]] = {
    "coverage": coverage.main,
    "scatter": scatter.main,
    "resampled": resampled.main,  # of what `scatter` has recorded
    "cost": cost.main,
    "repeatability": repeatability.main,
    "alarms": alarms.main,
    "plain_step": plain_step.main,
}
BY_NAME = SPEED | METHOD

with checked():
    words = asked[:first_option] or list(SPEED)
    names = [name for word in words for name in (METHOD if word == "method" else [word])]
    if unknown := set(names) - BY_NAME.keys():
        sys.stderr.write(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(BY_NAME)}, method\n")
        raise SystemExit(USAGE)
    for name in names:
        print(f"== {name}", flush=True)
        BY_NAME[name]()
