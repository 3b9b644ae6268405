"""Check a result against a baseline: pass, fail or inconclusive.

The two results may be weeks apart, so their ratio varies by more than the scatter within both jobs. Fieller's interval
over the runs (`dyno.bench.measure.ratios`) includes only this scatter: of 104 recorded intervals over five runs, 57
contained the long-run mean. A gate with Fieller's interval would fail unchanged code. So the interval of the ratio
uses, for each side, the variance of a whole result, as `repeat` does (`dyno.bench.measure.series`). This variance has
two parts: between the runs of a job, and between the jobs of its series. A limit has no variance.

The new result isn't used to estimate how much jobs differ: a slowdown isn't scatter, but it would widen the interval.
For the same reason, results that failed their baselines aren't used (`Peer.failed`). If they were used, code that is
10 % slower would fail in only 10 % of its repeated jobs instead of in all. But unchanged jobs that fail by chance are
left out, too, so the estimate lacks the slowest values. At the default margin of 5 %, 0.4 % of unchanged jobs fail if
their levels deviate by 3 %, and 1.8 % if their levels deviate by 5 % (tests). If the baseline was replaced by a job
that provably differed from it, only results after that job are used (`BaselineFigure.level_since`).

Results of one series on equal CPUs are compared at the clock of the baseline's job, as in a comparison. The elasticity
(`dyno.bench.measure.series`) is estimated from the earlier jobs, and its error widens the interval. If the clocks
differ too much for an adjustment, the ratio is as measured, and the result has CLOCK_CHANGED. In this case, a higher
new clock may hide a slowdown, so the result doesn't pass.

The job must do the same work as the baseline's job, on equal hardware, because a ratio between other sizes, precisions
or devices isn't a change of speed. The job's spec may allow differences by name (`baseline_allow`).

A fail is a proven slowdown: the whole 95 % interval is below 1 / (1 + margin). If the slowdown equals the margin, a
single check fails one result in 40 by chance. Unchanged work fails far less often. An inconclusive job may make more
runs, and is then checked once more. With two checks, a wrong pass and a wrong fail each have a chance below one in 20,
even if the slowdown equals the margin. Without an earlier job, the chance is one in 12 if jobs differ as much as runs
(tests). The first check's ratio and scatter determine the number of runs that would settle the outcome. The job makes
them unless their number is above the maximum. More runs narrow only this job's part of the interval.

More runs hardly help with a smaller margin, since they reduce neither the variance of the baseline's job nor the
variance between jobs. In a simulation (runs scatter by 2 %, 20 earlier jobs), 88 % of unchanged jobs passed at a margin
of 3 %, both with 15 and with up to 45 runs. Instead of a larger budget, `margin_advice` names a suitable margin.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, NamedTuple

from pydantic import JsonValue

from dyno.bench.contract import MetricSpec
from dyno.bench.measure import peers, series
from dyno.bench.measure.differences import changes_work, circumstances, differing, leaves
from dyno.bench.measure.series import PeerSeries, ResultScatter
from dyno.bench.measure.warnings import MIN_PROCESSES, grave_codes, sorted_warnings, warning
from dyno.errors import FieldError, InvalidBaseline, InvalidSpec
from dyno.models.baseline import Baseline, BaselineFigure
from dyno.models.job import BaselineDifference, BaselineOutcome
from dyno.models.result import Headline, Metric, Peer, Result, ResultWarning, Verdict
from dyno.models.spec import MOST_MARGIN, Spec

MOST_TIMES_THE_RUNS = 3  # times the planned runs: the maximum number of runs if the spec sets no range
_MOST_PROCESSES = 100  # the maximum that a spec allows
# Maximum half-width of the ratio's interval, as a share of the margin (logarithms). Nine in ten unchanged results then
# pass the first check: t is 2.1 (20 degrees of freedom), and one ratio in ten is 1.3 deviations below 1.
_LARGEST_SHARE = 0.6
_Outcome = Literal["pass", "fail", "inconclusive"]


def most_runs(spec: Spec, made: int = 0) -> int:
    """The maximum number of runs of a job with a baseline. `made`: the number of runs before the baseline adds any."""
    runs = spec.measure.runs
    if runs.max > runs.min:
        return runs.max
    return min(MOST_TIMES_THE_RUNS * max(runs.max, made), _MOST_PROCESSES)


def figure_metric(result: Result, name: str | None) -> Metric:
    """The metric `name` of a result that becomes a baseline; the headline metric if `name` is None.

    Raises InvalidBaseline.
    """
    metric = series.headline_metric(result) if name is None else result.metric(name)
    able = [other.name for other in result.metrics if other.by_run and other.value]
    if metric is None:
        detail = f'the result has no metric "{name}"; choose {_listed(able)}' if name else "the result has no figure"
        raise InvalidBaseline([FieldError("/metric", "unknown-metric", detail)])
    if not metric.by_run or not metric.value or min(metric.by_run) <= 0:
        detail = (
            f"{metric.name} is taken once, or is zero, so nothing shows how much it scatters; choose {_listed(able)}"
        )
        raise InvalidBaseline([FieldError("/metric", "no-scatter", detail)])
    if result.verdict is Verdict.UNTRUSTED:
        detail = f"the result of {result.job} is untrusted ({grave_codes(result)}), so no job can be held against it"
        raise InvalidBaseline([FieldError("/job", "untrusted", detail)])
    return metric


def check_metric(baseline: Baseline, metrics: Sequence[MetricSpec]) -> None:
    """Check the baseline of a job whose result will have `metrics`. Raises InvalidSpec."""
    metric = next((metric for metric in metrics if metric.name == baseline.metric), None)
    of = f"{baseline.name} is a baseline of {baseline.metric}"
    if metric is None:
        names = _listed([other.name for other in metrics])
        wrong = FieldError("/baseline", "unknown-metric", f"{of}, which no run of this job has; use one of {names}")
    elif baseline.figure is not None and (metric.unit, metric.better) != (baseline.unit, baseline.better):
        forms = [f"{side.unit} ({side.better} is better)" for side in (baseline, metric)]
        wrong = FieldError("/baseline", "other-unit", f"{of} in {forms[0]}, but this job has it in {forms[1]}")
    else:
        return
    raise InvalidSpec([wrong])


def figure_of(
    metric: Metric,
    result: Result,
    spec: Spec,
    headline: Headline | None,
    sampled: Collection[str],
    finished_at: datetime | None,
) -> BaselineFigure:
    """The baseline's copy of a metric from `figure_metric`. `sampled`: the metrics that scatter like the headline."""
    assert metric.value is not None, "figure_metric refuses it"
    in_series = headline is not None and metric.name in sampled
    return BaselineFigure(
        value=metric.value,
        low=metric.low,
        high=metric.high,
        by_run=metric.by_run,
        verdict=result.verdict,
        finished_at=finished_at,
        params=result.params or spec.params,
        circumstances=_circumstances(spec, result),
        peer=headline.own if headline and in_series else peers.peer(result, metric, metric.value),
        series=headline.series if headline and in_series else None,
    )


@dataclass(frozen=True)
class JudgedResult:
    """A result and its baseline. `peers`: earlier figures of the series of both, by series id.

    `free`: params that don't change the work that the baseline's metric measures.
    """

    baseline: Baseline
    spec: Spec
    result: Result
    headline: Headline | None
    sampled: Collection[str]
    peers: Mapping[str, Sequence[Peer]]
    free: Collection[str] = ()


def judge(judged: JudgedResult) -> BaselineOutcome:
    """Compare the result with its baseline."""
    metric, baseline = judged.result.metric(judged.baseline.metric), judged.baseline
    unjudged = BaselineOutcome(
        name=baseline.name,
        outcome="inconclusive",
        metric=baseline.metric,
        margin=baseline.margin,
        job=baseline.job,
        differences=_differences(judged),
        other_work=other_work(judged),
    )
    if reason := _no_ratio(judged, metric):
        return unjudged.model_copy(update={"reason": reason})
    assert metric is not None, "_no_ratio has a reason"
    sides = _sides(judged, metric)
    ratios = {"ratio": sides.ratio, "ratio_as_measured": sides.as_measured}
    if unjudged.other_work:
        return unjudged.model_copy(update=ratios | {"reason": _why_other_work(unjudged.other_work)})
    if reason := _no_interval(metric, sides.scatters):
        return unjudged.model_copy(update=ratios | {"reason": reason})
    low, high = sides.bounds
    interval = {"outcome": _outcome(judged, low, high), "low": low, "high": high}
    return unjudged.model_copy(update=ratios | interval | {"reason": "; ".join(_reasons(judged, low, high)) or None})


def _reasons(judged: JudgedResult, low: float, high: float) -> list[str]:
    """The reasons for an inconclusive outcome, and a note if the clock has changed."""
    limit, reasons = _least(judged.baseline.margin), []
    if low < limit <= high:
        reasons.append(f"the interval holds {limit:.4g}, the limit")
        if all(peer.job == judged.baseline.job for stored in judged.peers.values() for peer in stored):
            reasons.append("no earlier result shows how much jobs differ (disturbed ones don't count)")
    if changed := clock_change(judged):
        reasons.append(changed.message)
        if low >= limit and _has_higher_clock(judged):
            reasons.append("the higher clock may hide a slowdown")
    return reasons


def with_outcome(judged: JudgedResult) -> Result:
    """The result with its outcome, and with CLOCK_CHANGED if the clock has changed."""
    changed = clock_change(judged)
    warnings = sorted_warnings([*judged.result.warnings, *([] if changed is None else [changed])])
    return judged.result.model_copy(update={"baseline": judge(judged), "warnings": warnings})


def clock_change(judged: JudgedResult) -> ResultWarning | None:
    """CLOCK_CHANGED if both jobs are of one series on equal hardware, but their clocks differ too much."""
    clocks = _far_clocks(judged)
    return series.clock_changed([("the job", clocks[0])], "the baseline's job", clocks[1]) if clocks else None


def _far_clocks(judged: JudgedResult) -> tuple[float, float] | None:
    """The clocks of the job and of the baseline's job, if they differ too much for an adjustment; else None."""
    figure, headline = judged.baseline.figure, judged.headline
    if figure is None or headline is None or headline.series != figure.series:
        return None
    current, before = headline.own, figure.peer
    if not _have_one_clock(current, before) or not series.has_changed(current.clock_hz, before.clock_hz):
        return None
    return current.clock_hz or 0.0, before.clock_hz or 0.0


def _has_higher_clock(judged: JudgedResult) -> bool:
    clocks = _far_clocks(judged)
    return clocks is not None and clocks[0] > clocks[1]


def runs_to_settle(judged: JudgedResult, most: int) -> int:
    """The number of runs that would settle an inconclusive result at the same ratio and scatter, at most `most`.

    Returns the present number if the outcome is settled or can't be settled, and `most` for a single run.
    """
    metric, runs = judged.result.metric(judged.baseline.metric), len(judged.result.runs)
    if metric is None or not metric.by_run or _no_ratio(judged, metric) or other_work(judged):
        return runs
    if judge(judged).outcome != "inconclusive":
        return runs
    for number in range(runs + 1, most + 1):
        sides = _sides(judged, metric, runs=number)
        if None in sides.scatters:
            return most if runs == 1 else runs
        if _outcome(judged, *sides.bounds) != "inconclusive":
            return number
    return runs


def margin_advice(baseline: Baseline, spec: Spec, stored: Sequence[Peer], better: str) -> ResultWarning | None:
    """MARGIN_FINE if unchanged work would often be inconclusive.

    `stored`: the figures of the baseline's series, newest first. `better`: the direction of these headline figures.
    """
    figure = baseline.figure
    runs = most_runs(spec, figure.peer.runs if figure and spec.measure.buys_runs else 0)
    if figure is None or runs < MIN_PROCESSES or (half := _half_width(figure, stored, runs, better)) is None:
        return None
    if half <= _LARGEST_SHARE * math.log1p(baseline.margin):
        return None
    margin = _rounded_up(math.expm1(half / _LARGEST_SHARE))
    able = f"can tell about {100 * margin:.2g} %" if margin <= MOST_MARGIN else f"can't even tell {MOST_MARGIN:.0%}"
    return warning(
        "MARGIN_FINE",
        f"The margin of {baseline.name} is {100 * baseline.margin:.2g} %, but even after {runs} runs, a ratio would be "
        f"known to ±{100 * math.expm1(half):.2g} % only. A gate {able}; with less, many results are inconclusive.",
        margin=baseline.margin,
        rel_half_width=math.expm1(half),
        least_margin=margin if margin <= MOST_MARGIN else None,
    )


def _rounded_up(value: float) -> float:
    """To two significant digits."""
    digit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return digit * math.ceil(value / digit)


def _half_width(figure: BaselineFigure, stored: Sequence[Peer], runs: int, better: str) -> float | None:
    """The half-width of the ratio's interval, in logarithms, if `runs` runs of a job scatter like the baseline's."""
    own = figure.peer.model_copy(update={"job": "", "runs": runs})
    before = _alike(figure.peer, _from(figure.level_since, stored))
    earlier = [figure.peer, *before] if figure.series else []
    of_clock, clocks = None, series.Adjustment()
    if figure.series and _have_one_clock(own, figure.peer) and figure.circumstances.get("/device/kind") == "cpu":
        sign = 1.0 if better == "higher" else -1.0
        of_clock = series.elasticity(series.counting([figure.peer, *before]), sign * series.ASSUMED_ELSEWHERE)
        both = runs, figure.peer.runs or 1
        clocks = series.adjustment(own.clock_hz, own.clock_hz, both, of_clock, {"kind": "cpu"}) or clocks
    scatters = [
        PeerSeries(own, earlier, of_clock).scatter(own_counts=False),
        PeerSeries(figure.peer, before, of_clock).scatter(),
    ]
    known = [scatter for scatter in scatters if scatter is not None]
    if len(known) < len(scatters):
        return None
    return math.log(series.ratio_interval(1.0, known, clocks.log_variance).high)


def is_another_level(outcome: BaselineOutcome | None) -> bool:
    """Whether a result is proven to be slower or faster than the baseline's job by more than the margin."""
    if outcome is None or outcome.job is None or outcome.low is None or outcome.high is None or outcome.margin is None:
        return False
    return outcome.high < _least(outcome.margin) or outcome.low > 1 + outcome.margin


def without_figures(name: str, reason: str) -> BaselineOutcome:
    """The outcome for a baseline that couldn't be read."""
    return BaselineOutcome(name=name, outcome="inconclusive", reason=reason)


def _least(margin: float) -> float:
    """The smallest ratio that isn't a slowdown beyond the margin."""
    return 1 / (1 + margin)


def _outcome(judged: JudgedResult, low: float, high: float) -> _Outcome:
    limit = _least(judged.baseline.margin)
    if high < limit:
        return "fail"
    return "pass" if low >= limit and not _has_higher_clock(judged) else "inconclusive"


class _Sides(NamedTuple):
    """The ratio, and the scatter of each compared result; a scatter is None if it can't be estimated.

    `log_variance`: the variance that the adjustment to one clock adds to the ratio's logarithm.
    """

    ratio: float
    as_measured: float
    scatters: list[ResultScatter | None]
    log_variance: float = 0.0

    @property
    def bounds(self) -> tuple[float, float]:
        known = [scatter for scatter in self.scatters if scatter is not None]
        band = series.ratio_interval(self.ratio, known, self.log_variance)
        return band.low, band.high


def _sides(judged: JudgedResult, metric: Metric, runs: int | None = None) -> _Sides:
    """The sides of the ratio. `runs`: compute them as if the job had made this number of runs."""
    figure, value = judged.baseline.figure, metric.value or 0.0
    own, series_id = _in_series(judged, metric)
    if runs is not None:
        own = own.model_copy(update={"runs": runs})
    earlier = _alike(own, _of_level(judged, series_id))
    if figure is None:
        ratio = _to_limit(judged.baseline, value)
        return _Sides(ratio, ratio, [PeerSeries(own, earlier).scatter(own_counts=False)])
    as_measured = value / figure.value if metric.better == "higher" else figure.value / value
    before = _alike(figure.peer, _of_level(judged, figure.series))
    is_same = series_id is not None and series_id == figure.series
    if is_same and series.same_conditions(own, figure.peer):
        earlier = [figure.peer, *before]
    of_clock, at_clock = None, None
    if is_same and _have_one_clock(own, figure.peer):
        of_clock = series.series_elasticity(judged.result, [figure.peer, *before])
        of_ratio = replace(of_clock, value=abs(of_clock.value))  # a ratio above 1 is better, as for a rate
        of_both = own.runs or 1, figure.peer.runs or 1
        at_clock = series.adjustment(own.clock_hz, figure.peer.clock_hz, of_both, of_ratio, judged.result.device)
    if at_clock is None:
        of_clock, at_clock = None, series.Adjustment()
    scatters = [
        PeerSeries(own, earlier, of_clock).scatter(own_counts=False),
        PeerSeries(figure.peer, before, of_clock).scatter(),
    ]
    return _Sides(as_measured * at_clock.factor, as_measured, scatters, at_clock.log_variance)


def _to_limit(baseline: Baseline, value: float) -> float:
    if baseline.at_most is not None:
        return baseline.at_most / value
    assert baseline.at_least is not None, "a baseline without a figure has a limit"
    return value / baseline.at_least


def _in_series(judged: JudgedResult, metric: Metric) -> tuple[Peer, str | None]:
    """The result's figure and its series id; the id is None if the metric doesn't scatter like the headline metric."""
    if judged.headline is not None and metric.name in judged.sampled:
        return judged.headline.own, judged.headline.series
    return peers.peer(judged.result, metric, metric.value or 0.0), None


def _of_level(judged: JudgedResult, series_id: str | None) -> Sequence[Peer]:
    """A series' earlier results at the baseline's level; all stored results if the level's first job isn't stored."""
    figure = judged.baseline.figure
    return _from(figure.level_since if figure else None, judged.peers.get(series_id or "", ()))


def _from(job: str | None, stored: Sequence[Peer]) -> Sequence[Peer]:
    """Figures newer than the figure of `job`; all figures if `job` isn't stored. `stored` begins with the newest."""
    return stored[: next((position for position, peer in enumerate(stored) if peer.job == job), None)]


def _alike(own: Peer, stored: Sequence[Peer]) -> list[Peer]:
    """The other results under the same conditions that didn't fail their baselines."""
    others = [peer for peer in stored if peer.job != own.job and not peer.failed]
    return [peer for peer in others if series.same_conditions(own, peer)]


def _have_one_clock(own: Peer, other: Peer) -> bool:
    """Whether both results have equal hardware and known clocks, which may explain a part of their difference."""
    return (
        own.hardware_id is not None and own.hardware_id == other.hardware_id and bool(own.clock_hz and other.clock_hz)
    )


def _no_ratio(judged: JudgedResult, metric: Metric | None) -> str | None:
    """Why the result can't be compared with the baseline; None if it can be compared."""
    baseline, result = judged.baseline, judged.result
    if metric is None:
        names = _listed([other.name for other in result.metrics])
        return f"the result has no metric {baseline.metric}, which the baseline is of; it has {names}"
    if baseline.figure is not None and (metric.unit, metric.better) != (baseline.unit, baseline.better):
        return f"{metric.name} is in {metric.unit} here, and in {baseline.unit} in the baseline"
    if not metric.value or metric.value < 0:
        return metric.reason or f"{metric.name} is zero"
    if result.verdict is Verdict.UNTRUSTED:
        return f"the result is untrusted: {grave_codes(result)}"
    return None


def _no_interval(metric: Metric, scatters: Sequence[object]) -> str | None:
    if not metric.by_run:
        return f"{metric.name} is taken once, so its scatter is unknown"
    if None in scatters:
        return "nothing shows how much results scatter: there is one run, and there are no earlier jobs"
    return None


def _differences(judged: JudgedResult) -> list[BaselineDifference]:
    return [
        BaselineDifference(field=difference.field, baseline=difference.values[0], job=difference.values[1])
        for difference in differing(_both(judged))
    ]


def _both(judged: JudgedResult) -> list[dict[str, JsonValue]]:
    """The params and circumstances of the baseline and of the result; empty if the baseline is a limit."""
    figure, result = judged.baseline.figure, judged.result
    if figure is None:
        return []
    before = {**leaves("/params", figure.params), **figure.circumstances}
    return [before, {**leaves("/params", result.params or judged.spec.params), **_circumstances(judged.spec, result)}]


def other_work(judged: JudgedResult) -> list[str]:
    """The fields of work or hardware that differ although the spec doesn't allow it. A field that one side lacks, such
    as a param of a newer version, isn't a difference.
    """
    both = _both(judged)
    if not both:
        return []
    shared = [change for change in differing(both) if all(change.field in side for side in both)]
    fields = [change.field for change in shared if changes_work(change, judged.free) or change.field == "/replicas"]
    hardware = ["/hardware_id"] if _is_other_hardware(*both) else []
    return [field for field in fields + hardware if _allowing(field) not in judged.spec.baseline_allow]


_NAMES = {
    "/workload": "workload",
    "/precision/requested": "precision",
    "/precision/observed": "precision",
    "/params/dtype": "precision",
    "/params/precision": "precision",
    "/method_version": "method",
    "/replicas": "replicas",
    "/hardware_id": "hardware",
}


def _allowing(field: str) -> str:
    """The name in `baseline_allow` that allows a difference in the field."""
    return _NAMES[field] if field in _NAMES else f"params.{field.split('/')[2]}"


def _is_other_hardware(*sides: Mapping[str, JsonValue]) -> bool:
    """Whether the hardware may differ. If an id is missing, kind, model and number of cores are compared instead."""
    ids = [side.get("/hardware_id") for side in sides]
    if None not in ids:
        return ids[0] != ids[1]
    devices = [[side.get("/device/kind"), side.get("/device/model"), _cores(side)] for side in sides]
    return None in devices[0][:2] or devices[0] != devices[1]


def _cores(side: Mapping[str, JsonValue]) -> int | None:
    cores = side.get("/device/cores")
    return len(cores) if isinstance(cores, list) else None


def _why_other_work(fields: Sequence[str]) -> str:
    names = dict.fromkeys(map(_allowing, fields))
    return (
        f"the job is of other work or other hardware than the baseline's: {', '.join(fields)}; to judge it all the "
        f"same, allow by name {', '.join(names)} (--baseline-allow, or baseline_allow of the spec)"
    )


def _circumstances(spec: Spec, result: Result) -> dict[str, JsonValue]:
    return {"/workload": result.workload, **circumstances(spec, result)}


def _listed(names: Sequence[str]) -> str:
    return " or ".join(names) or "none"
