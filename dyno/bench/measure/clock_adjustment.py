"""Adjust figures to one clock of the device: a wandering clock explains a figure instead of spoiling it.

A rate is proportional to clock^elasticity. The elasticity is 1 if arithmetic bounds the work, and less if memory, input
or the framework does. On a host whose clock wandered from 3.56 to 4.02 GHz between six jobs, `matmul` varied by 3.7 %,
and by 1.0 % once adjusted with 0.89. `mnist_cnn`'s time per sample varied by 2.1 %, and by 1.0 % with -0.42.

A series' elasticity is the slope of its jobs' logarithms, by ridge regression towards an assumed value (Hoerl & Kennard
1970, Technometrics 12). The assumed value weighs as much as `ASSUMED_JOBS` jobs whose clocks deviate by
`ASSUMED_DEVIATION`. So jobs whose clocks hardly differ teach little, and their figures are hardly adjusted either. An
error of the measured clock flattens the slope, which then adjusts by less.

Only figures of the same work on equal CPUs are adjusted. Other work may set another clock: a GPU under a power limit
lowers its clock for some work, so its clock is a part of the figure. So is a TPU's clock, which no sensor reports. The
clocks of two results may differ by at most LARGEST_CHANGE, as in history and in the regression band. Clocks of a shared
host wandered by 9 to 13 % within an hour, and equal devices differ by 8 %. A larger step has its own cause, such as
heat, a power limit or a governor: the device is slow, and so is a figure that follows it. An adjusted figure would
excuse the device, so Dyno raises CLOCK_CHANGED instead.

The adjustment adds two variances to a logarithm: the elasticity's times the square of the clocks' logarithmic ratio,
and the clocks' times the square of the elasticity.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from dyno.models.result import Peer, Result, ResultSummary

COMPUTE_BOUND = 0.3  # fraction of peak from which work is bound by arithmetic (see WEAK_BASELINE)
ASSUMED = 1.0
ASSUMED_ELSEWHERE = 0.5
ASSUMED_JOBS = 4
ASSUMED_DEVIATION = 0.01
ASSUMED_ERROR = 0.3  # standard deviation: elasticities are between 0 and 1, and uniform ones deviate by 0.29
LARGEST_CHANGE = 0.1
CLOCK_ERROR = 0.01  # of one run's clock: in recorded jobs, clocks deviated by 0.4 to 1.5 % from run to run
_ASSUMED_SQUARES = ASSUMED_JOBS * ASSUMED_DEVIATION**2


@dataclass(frozen=True)
class Elasticity:
    """The relative change of a figure for a relative change of the clock: above zero for rates, below for times.

    `lost_degrees`: the degrees of freedom that its estimation takes from the series, 0 to 1. `error`: its standard
    deviation.
    """

    value: float
    lost_degrees: float = 0.0
    error: float = ASSUMED_ERROR


def clock_hz(result: Result | ResultSummary) -> float | None:
    """The mean of the runs' clocks; None if one is unknown."""
    clocks_hz = [run.clock_hz for run in result.runs if run.clock_hz]
    return fmean(clocks_hz) if clocks_hz and len(clocks_hz) == len(result.runs) else None


def assumed_elasticity(result: Result) -> float:
    """The elasticity of a rate without any earlier result."""
    return ASSUMED if (result.peak.fraction or 0.0) >= COMPUTE_BOUND else ASSUMED_ELSEWHERE


def is_adjustable(device: Mapping[str, Any]) -> bool:
    """Whether the device's clock explains its figures, instead of being a part of them."""
    return device.get("kind") == "cpu"


def elasticity(jobs: Sequence[Peer], assumed: float) -> Elasticity:
    """The elasticity of a series, with the sign of `assumed`. All jobs have clocks."""
    clocks, figures = _centred([job.clock_hz or 0.0 for job in jobs]), _centred([job.value for job in jobs])
    squares = math.fsum(clock**2 for clock in clocks)
    products = math.fsum(clock * figure for clock, figure in zip(clocks, figures, strict=True))
    slope = (assumed * _ASSUMED_SQUARES + products) / (_ASSUMED_SQUARES + squares)
    lowest, highest = min(0.0, math.copysign(1.0, assumed)), max(0.0, math.copysign(1.0, assumed))
    value, learned = min(max(slope, lowest), highest), squares / (_ASSUMED_SQUARES + squares)
    residual = math.fsum((figure - value * clock) ** 2 for clock, figure in zip(clocks, figures, strict=True))
    variance = residual / max(len(jobs) - 1 - learned, 1.0)
    of_slope = learned**2 * variance / squares if squares > 0 else 0.0
    error = math.sqrt(((1 - learned) * ASSUMED_ERROR) ** 2 + of_slope)
    return Elasticity(value, learned, min(error, ASSUMED_ERROR))


def adjusted(job: Peer, to_hz: float | None, by: float | None) -> float:
    """The value at the clock `to_hz`; unchanged if a clock or the elasticity is unknown."""
    return job.value * factor(job.clock_hz, to_hz, by)


def factor(from_hz: float | None, to_hz: float | None, by: float | None) -> float:
    """The factor that turns a figure at `from_hz` into the figure at `to_hz`; 1 if anything is unknown."""
    return (to_hz / from_hz) ** by if from_hz and to_hz and by is not None else 1.0


def has_changed(first_hz: float | None, other_hz: float | None) -> bool:
    """Whether the clocks are known and differ by more than LARGEST_CHANGE."""
    clocks_hz = [hz for hz in (first_hz, other_hz) if hz]
    return len(clocks_hz) == 2 and max(clocks_hz) > (1 + LARGEST_CHANGE) * min(clocks_hz)


def log_variance(clocks_hz: tuple[float, float], runs: tuple[int, int], by: Elasticity) -> float:
    """The variance that `factor` adds to the logarithm of a figure. `runs`: the numbers of runs behind both clocks."""
    step = math.log(clocks_hz[1] / clocks_hz[0])
    of_clocks = CLOCK_ERROR**2 * math.fsum(1 / max(count, 1) for count in runs)
    return step**2 * by.error**2 + by.value**2 * of_clocks


class Fit(NamedTuple):
    """The deviation of runs' times (logarithms) as they are and at one clock, and how far the clock moved the times.

    `left` has n - 2 degrees of freedom, because the elasticity is estimated from the same runs.
    `moved`: the largest distance from the mean that a run's clock explains. `clock_moved`: the largest distance of a
    clock itself, which is the most that any elasticity could explain.
    """

    as_is: float
    left: float
    moved: float
    clock_moved: float


def fit_runs(clocks_hz: Sequence[float], times_s: Sequence[float]) -> Fit:
    """Adjust runs to one clock, with the elasticity of least squares, between 0 and -1."""
    clocks, times = _centred(clocks_hz), _centred(times_s)
    squares = math.fsum(clock**2 for clock in clocks)
    products = math.fsum(clock * time for clock, time in zip(clocks, times, strict=True))
    slope = min(max(products / squares, -1.0), 0.0) if squares > 0 else 0.0
    residuals = [time - slope * clock for clock, time in zip(clocks, times, strict=True)]
    clock_moved = max(abs(clock) for clock in clocks)
    as_is, at_one_clock = _deviation(times, len(times) - 1), _deviation(residuals, max(len(times) - 2, 1))
    return Fit(as_is, at_one_clock, -slope * clock_moved, clock_moved)


def _centred(values: Sequence[float]) -> list[float]:
    logs = [math.log(value) for value in values]
    return [log - fmean(logs) for log in logs]


def _deviation(centred: Sequence[float], degrees: int) -> float:
    return math.sqrt(math.fsum(value**2 for value in centred) / degrees)
