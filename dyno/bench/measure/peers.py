"""Compare a result with its peers: predict the next result (`repeat`), and raise METRIC_OUT_OF_BAND.

A series has the headline figures of the same work on devices of the same model. Untrusted and disturbed results, and
results of too few samples, don't belong to it (`shows_level`).

`repeat` is an interval that contains the next result with a probability of 95 % (`dyno.bench.measure.series`). It uses
the peers with the same hardware and software. A figure's own interval describes one stretch of time, but the next
result will be from another. `repeat` is null if it is too wide to be of use, or if the result itself is far from its
peers. A data sheet's peak limits the bounds. A measured peak doesn't: it belongs to the clock of one moment.

METRIC_OUT_OF_BAND means that the figure is outside the band of its peers. If clocks are known, earlier figures are
adjusted to the clock of the new figure. But if that clock is outside the band of the earlier clocks, nothing is
adjusted: a device that is slow because its clock is low remains slow. With fewer than five peers there is no band.
Every series begins without peers, so the code isn't listed as unchecked then.
"""

import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from dyno.bench.contract import Params, ResolvedSpec
from dyno.bench.measure import series
from dyno.bench.measure.statistics import median
from dyno.bench.measure.warning_codes import CODES
from dyno.bench.measure.warnings import sorted_warnings, warning
from dyno.models.processor_names import model_name
from dyno.models.result import BasedOn, Headline, Metric, Peer, Repeat, Result, ResultSummary, ResultWarning, Verdict
from dyno.models.spec import Spec

_CODE = "METRIC_OUT_OF_BAND"
_NOT_READ = "the worker couldn't read earlier results of this work from the store"


def headline(result: Result, spec: Spec, params: Params) -> Headline | None:
    """The first sampled metric, and its series: the same work on devices of the same model.

    Results of a series also use the same number of CPU cores (a worker may have only some of the cores), or of units on
    other devices. None for emulated devices, which aren't comparable, or if nothing was sampled.
    """
    metric = series.headline_metric(result)
    if metric is None or metric.value is None or metric.value <= 0 or result.device.get("emulated"):
        return None
    work = work_of(spec, result, params.model_dump(mode="json"), params.untimed)
    return Headline(digest([*work, metric.name, metric.unit, *_model(result)]), peer(result, metric, metric.value))


def peer(result: Result, metric: Metric, value: float) -> Peer:
    """The figure of a result as a member of its series; `value` is the metric's value."""
    return Peer(
        job=result.job,
        value=value,
        hardware_id=result.hardware_id,
        context_id=result.context_id,
        runs=len(metric.by_run),
        scatter=series.log_deviation(metric.by_run),
        clock_hz=series.mean_clock_hz(result),
    )


def work_of(
    spec: Spec, result: Result | ResultSummary, requested: Mapping[str, object], untimed: Collection[str]
) -> list[object]:
    """The parts of a spec and a result that identify the same work, without `untimed` params."""
    timed = {name: value for name, value in {**requested, **result.params}.items() if name not in untimed}
    precision = [result.precision.requested, result.precision.observed] if result.precision else [None, None]
    return [spec.workload, timed, spec.framework, spec.replicas, precision, result.method_version]


def _model(result: Result) -> list[object]:
    kind, model = result.device.get("kind"), result.device.get("model")
    share = len(result.device.get("cores", ())) if kind == "cpu" else result.device.get("units")
    return [kind, model, share]


def digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


# Codes of disturbances that later results may not have, and the code for too few samples.
DISTURBED = frozenset({"NOISY_NEIGHBOUR", "DEVICE_SHARED", "THROTTLED", "CPU_QUOTA", "INSUFFICIENT_SAMPLES"})


def shows_level(result: Result) -> bool:
    """Whether later results may use the figure as a peer: it isn't wrong or disturbed, and has enough samples."""
    codes = {warning_raised.code for warning_raised in result.warnings}
    return result.verdict is not Verdict.UNTRUSTED and not codes & DISTURBED


def with_history(result: Result, of: ResolvedSpec, peers: Sequence[Peer] | None) -> tuple[Result, Headline | None]:
    """(result, figure). The result has its band check and its prediction from `peers`, which are None if the store
    wasn't readable. The figure is for later results; None if they must not use it.
    """
    current = headline(result, of.spec, of.params)
    if current is None:
        return result, None
    sampled = {metric.name for metric in of.workload.metrics_for(of.params) if metric.sampled}
    predicted = with_prediction(result, current.own, peers or [], sampled)
    checked = with_band_check(predicted, current.own, peers)
    return checked, current if shows_level(checked) else None


def with_prediction(result: Result, own: Peer, peers: Sequence[Peer], sampled: Collection[str]) -> Result:
    """The result with a `repeat` that also uses the `peers` of the same conditions.

    `own` is the headline figure. `repeat` applies to the `sampled` metrics, which are the same times in other units.
    """
    of = series.PeerSeries.of(result, own, peers)
    half = of.half_width()
    if half is None:
        return result
    predicted = partial(_predicted, result, of, half, _why_stray(of))
    return result.model_copy(
        update={"metrics": [predicted(metric) if metric.name in sampled else metric for metric in result.metrics]}
    )


def _why_stray(of: series.PeerSeries) -> str | None:
    """The reason why this result can't predict the next result, if it is far from the earlier results; else None."""
    if not of.is_stray:
        return None
    share = of.own.value / median([job.value for job in of.earlier]) - 1
    return f"not known yet: this result is {_away(share)} the earlier ones"


def _away(share: float) -> str:
    return f"{abs(share):.0%} {'above' if share > 0 else 'below'}"


def _predicted(result: Result, of: series.PeerSeries, half: float, stray: str | None, metric: Metric) -> Metric:
    """The metric with its prediction (`half`: the half-width in logarithms), or for a stray result, with the reason."""
    if not metric.value or metric.value < 0:
        return metric
    if stray:
        return metric.model_copy(update={"repeat": None, "repeat_reason": stray})
    band = series.around(metric.value, half)
    based_on = BasedOn(runs=of.own.runs or 1, jobs=len(of.earlier))
    fields = series.usable(Repeat(low=band.low, high=band.high, based_on=based_on))
    if fields["repeat"] is not None:
        changes = _within_peak(result, metric, band) | _at_clock(of, metric)
        fields["repeat"] = fields["repeat"].model_copy(update=changes)
    return metric.model_copy(update=fields)


def _within_peak(result: Result, metric: Metric, band: series.Band) -> dict[str, float]:
    fraction = result.peak.fraction if result.peak.provenance == "datasheet" else None
    if not fraction or not 0 < fraction <= 1:
        return {}
    if metric.better == "higher":
        return {"high": min(band.high, band.centre / fraction)}
    return {"low": max(band.low, band.centre * fraction)}


def _at_clock(of: series.PeerSeries, metric: Metric) -> dict[str, float | None]:
    if of.of_clock is None:
        return {}
    elasticity = math.copysign(of.of_clock.value, 1 if metric.better == "higher" else -1)
    return {"clock_hz": of.own.clock_hz, "elasticity": elasticity, "elasticity_error": of.of_clock.error}


def with_band_check(result: Result, own: Peer, peers: Sequence[Peer] | None) -> Result:
    """The result, checked against `peers`. If the store wasn't readable (`peers` is None), the code is unchecked."""
    if peers is None:
        return _unchecked(result)
    out_of_band = _out_of_band(result, own, peers)
    if out_of_band is None:
        return result
    warnings = sorted_warnings([*result.warnings, out_of_band])
    return result.model_copy(update={"warnings": warnings, "verdict": _at_best_indicative(result)})


def _out_of_band(result: Result, own: Peer, peers: Sequence[Peer]) -> ResultWarning | None:
    others = [peer for peer in peers if peer.value > 0]
    if len(others) < series.MIN_PEERS:
        return None
    metric, of_clock = series.headline_metric(result), series.PeerSeries.of(result, own, others).of_clock
    elasticity = None if of_clock is None or _clock_out_of_band(own, others) else of_clock.value
    band = series.robust_band([series.adjusted(peer, own.clock_hz, elasticity) for peer in others])
    if band.low <= own.value <= band.high:
        return None
    model = result.device.get("model")
    away = _away(own.value / band.centre - 1)
    return warning(
        "METRIC_OUT_OF_BAND",
        f"The figure is {away} the median of {len(others)} results of the same work on devices of model "
        f"{model_name(str(model))}.",
        metric=metric.name if metric else None,
        value=own.value,
        median=band.centre,
        count=len(others),
        band=[band.low, band.high],
        clock_hz=own.clock_hz,
        elasticity=elasticity,
        device_model=model,
        same_hardware=sum(peer.hardware_id == own.hardware_id for peer in others),
        same_context=sum(peer.context_id == own.context_id for peer in others),
    )


def _clock_out_of_band(own: Peer, others: Sequence[Peer]) -> bool:
    clocks = [peer.clock_hz for peer in others if peer.clock_hz]
    if not own.clock_hz or len(clocks) < series.MIN_PEERS:
        return False
    band = series.robust_band(clocks)
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
