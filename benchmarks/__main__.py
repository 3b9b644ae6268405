"""`python -m benchmarks [NAME …]` runs the named benchmarks, or all that measure Dyno's speed.

`method` stands for the benchmarks of the method. They need an idle machine for three and a half hours; `repeat` spreads
its jobs over two of these hours.
"""

from __future__ import annotations

from importlib import import_module

from benchmarks.report import requested

SPEED = ("start", "matmul", "trainings", "http", "scale", "disturbance", "dashboard", "eta")
# `resampled` reads what `scatter` records.
METHOD = ("coverage", "scatter", "resampled", "cost", "alarms", "repeat", "gate", "history")
VERDICT = (
    "trusted",
    "neighbours",
    "instrument",
    "bandwidth",
    "transformer",
    "roofline",
    "budget",
)  # an hour on an idle machine, `budget` many hours

for word in requested((*SPEED, *METHOD, *VERDICT, "method"), SPEED):
    for name in METHOD if word == "method" else (word,):
        print(f"== {name}", flush=True)
        import_module(f"benchmarks.{name}").main()
