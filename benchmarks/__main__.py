"""`python -m benchmarks [NAME …]`: the named benchmarks, or all that measure Dyno's speed.

`method` stands for the benchmarks of the method. They need an idle machine for an hour and a half.
"""

from __future__ import annotations

from importlib import import_module

from benchmarks.report import requested

SPEED = ("start", "matmul", "trainings", "http", "scale", "disturbance", "eta")
# `resampled` reads what `scatter` records.
METHOD = ("coverage", "scatter", "resampled", "cost", "alarms")

for word in requested((*SPEED, *METHOD, "method"), SPEED):
    for name in METHOD if word == "method" else (word,):
        print(f"== {name}", flush=True)
        import_module(f"benchmarks.{name}").main()
