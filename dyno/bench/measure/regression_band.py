"""METRIC_OUT_OF_BAND: is the headline metric far from earlier results of the same work?

If clocks are known, earlier figures are adjusted to the clock of the new figure
(`dyno.bench.measure.clock_adjustment`). But if that clock is outside the band of the earlier clocks, nothing is
adjusted: a device that is slow because its clock is low remains slow.

The band is a prediction interval around the median of the other results on devices of this model. It uses logarithms,
so that a rate and its time are judged alike. The scatter is the median absolute deviation, which a few bad results or
a second mode don't widen. The band holds a new value with a probability of 99 %. Its half-width is the scatter times
Student's t, times a factor for the median's own error. The degrees of freedom are 37 % of the number of results, the
deviation's efficiency (`statistics.robust_half_width`). A fixed multiple, such as the 3.5 of Iglewicz & Hoaglin (1993),
would raise the warning for one normal result in eight against five others.

The band is at least 10 % wide on either side, because equal devices differ by 8 % on average (Sinha et al. 2022, "Not
All GPUs Are Created Equal", five clusters).

Untrusted and disturbed results, and results of too few samples, don't count as peers (`shows_level`).

With fewer than five other results there is no band. All work begins so, and the check doesn't count as missed.
"""

import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dyno.bench.contract import Params, ResolvedSpec
from dyno.bench.measure.clock_adjustment import adjusted, clock_hz
from dyno.bench.measure.repeatability import (
    clock_elasticity,
    headline_metric,
    log_deviation,
    same_conditions,
    with_earlier_results,
)
from dyno.bench.measure.statistics import median, robust_half_width
from dyno.bench.measure.warning_codes import CODES
from dyno.bench.measure.warnings import sorted_warnings, warning
from dyno.models.processor_names import model_name
from dyno.models.result import Headline, Metric, Peer, Result, ResultSummary, ResultWarning, Verdict
from dyno.models.spec import Spec

_CODE = "METRIC_OUT_OF_BAND"
_NOT_READ = "the worker couldn't read earlier results of this work from the store"
MIN_PEERS = 5
CONFIDENCE = 0.99
FLOOR = 0.1
_WIDEST = math.log(1e6)  # a finite half-width at which no figure raises the warning


@dataclass(frozen=True)
class RegressionBand:
    """Bounds in the figures' unit, around the median of `count` figures."""

    low: float
    high: float
    median: float
    count: int


def headline(result: Result, spec: Spec, params: Params) -> Headline | None:
    """The first sampled metric, and its series: the same work on devices of the same model.

    A series also has one number of cores for CPUs, since a worker may have only some cores, and one number of units for
    other devices. None for emulated devices, which aren't comparable, and if nothing was sampled.
    """
    metric = headline_metric(result)
    if metric is None or metric.value is None or metric.value <= 0 or result.device.get("emulated"):
        return None
    work = work_of(spec, result, params.model_dump(mode="json"), params.untimed)
    return Headline(digest([*work, metric.name, metric.unit, *_model(result)]), peer(result, metric, metric.value))


def peer(result: Result, metric: Metric, value: float) -> Peer:
    """The figure of a result as a member of its series; `value` is the headline metric's."""
    return Peer(
        job=result.job,
        value=value,
        hardware_id=result.hardware_id,
        context_id=result.context_id,
        runs=len(metric.by_run),
        scatter=log_deviation(metric.by_run),
        clock_hz=clock_hz(result),
    )


def work_of(
    spec: Spec, result: Result | ResultSummary, requested: Mapping[str, object], untimed: Collection[str]
) -> list[object]:
    """The parts of a spec and a result that identify the same work, without `untimed` params."""
    timed = {name: value for name, value in {**requested, **result.params}.items() if name not in untimed}
    precision = [result.precision.requested, result.precision.observed] if result.precision else [None, None]
    return [spec.workload, timed, spec.framework, spec.replicas, precision, result.method_version]


# Codes of a condition that later results don't have, or of too few samples for a level.
DISTURBED = frozenset({"NOISY_NEIGHBOUR", "DEVICE_SHARED", "THROTTLED", "CPU_QUOTA", "INSUFFICIENT_SAMPLES"})


def shows_level(result: Result) -> bool:
    """Whether the figure is a peer of later results: it isn't wrong or disturbed, and has enough samples."""
    codes = {warning_raised.code for warning_raised in result.warnings}
    return result.verdict is not Verdict.UNTRUSTED and not codes & DISTURBED


def with_history(result: Result, of: ResolvedSpec, peers: Sequence[Peer] | None) -> tuple[Result, Headline | None]:
    """The result with its band check and its prediction from `peers`, and its figure for later results; the figure is
    None if they must not use it. `peers`: None if the store wasn't readable.
    """
    current = headline(result, of.spec, of.params)
    if current is None:
        return result, None
    sampled = {metric.name for metric in of.workload.metrics_for(of.params) if metric.sampled}
    predicted = with_earlier_results(result, current.own, peers or [], sampled)
    checked = with_band_check(predicted, current.own, peers)
    return checked, current if shows_level(checked) else None


def with_band_check(result: Result, own: Peer, peers: Sequence[Peer] | None) -> Result:
    """The result, checked against `peers`. If the store wasn't readable (`peers` is None), the code is unchecked."""
    if peers is None:
        return _unchecked(result)
    out_of_band = _out_of_band(result, own, peers)
    if out_of_band is None:
        return result
    warnings = sorted_warnings([*result.warnings, out_of_band])
    return result.model_copy(update={"warnings": warnings, "verdict": _at_best_indicative(result)})


def regression_band(values: Sequence[float]) -> RegressionBand:
    """The band for one more value, given positive `values`. Raises ValueError for fewer than five."""
    count = len(values)
    if count < MIN_PEERS:
        raise ValueError(f"a band needs {MIN_PEERS} values, not {count}")
    logs = [math.log(value) for value in values]
    half = robust_half_width(logs, CONFIDENCE)
    factor = math.exp(min(max(half, math.log1p(FLOOR)), _WIDEST))
    middle = math.exp(median(logs))
    return RegressionBand(middle / factor, middle * factor, middle, count)


def _out_of_band(result: Result, own: Peer, peers: Sequence[Peer]) -> ResultWarning | None:
    others = [peer for peer in peers if peer.value > 0]
    if len(others) < MIN_PEERS:
        return None
    metric = headline_metric(result)
    of_clock = clock_elasticity(result, own, [peer for peer in others if same_conditions(own, peer)])
    elasticity = None if of_clock is None or _clock_out_of_band(own, others) else of_clock.value
    band = regression_band([adjusted(peer, own.clock_hz, elasticity) for peer in others])
    if band.low <= own.value <= band.high:
        return None
    model = result.device.get("model")
    share, name = own.value / band.median - 1, model_name(str(model))
    away = f"{abs(share):.0%} {'above' if share > 0 else 'below'}"
    return warning(
        "METRIC_OUT_OF_BAND",
        f"The figure is {away} the median of {band.count} results of the same work on devices of model {name}.",
        metric=metric.name if metric else None,
        value=own.value,
        median=band.median,
        count=band.count,
        band=[band.low, band.high],
        clock_hz=own.clock_hz,
        elasticity=elasticity,
        device_model=model,
        same_hardware=sum(peer.hardware_id == own.hardware_id for peer in others),
        same_context=sum(peer.context_id == own.context_id for peer in others),
    )


def _clock_out_of_band(own: Peer, others: Sequence[Peer]) -> bool:
    clocks = [peer.clock_hz for peer in others if peer.clock_hz]
    if not own.clock_hz or len(clocks) < MIN_PEERS:
        return False
    band = regression_band(clocks)
    return not band.low <= own.clock_hz <= band.high


def _unchecked(result: Result) -> Result:
    missing, reasons = {*result.unchecked, _CODE}, result.details.get("unchecked_reasons")
    all_reasons = {**(reasons if isinstance(reasons, dict) else {}), _CODE: _NOT_READ}
    return result.model_copy(
        update={
            "unchecked": [code for code in CODES if code in missing],
            "details": {**result.details, "unchecked_reasons": all_reasons},
            "verdict": _at_best_indicative(result),
        }
    )


def _at_best_indicative(result: Result) -> Verdict:
    return min(result.verdict, Verdict.INDICATIVE, key=lambda verdict: verdict.rank)


def _model(result: Result) -> list[object]:
    kind, model = result.device.get("kind"), result.device.get("model")
    share = len(result.device.get("cores", ())) if kind == "cpu" else result.device.get("units")
    return [kind, model, share]


def digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]
