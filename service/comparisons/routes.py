"""Comparisons of results that share a metric, as JSON and as a bar chart.

The chart has a bar for each result, its interval as a whisker, and its verdict as text. It is plain SVG without
scripts, style sheets or a background. Text has a contrast of 4.5 with white and with black, bars have 3.9, and
no information depends on colour alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any
from xml.etree import ElementTree

import anyio.to_thread
from fastapi import APIRouter, Depends, Request, Response

from dyno.bench.contract import Workload
from dyno.bench.measure.compare_results import ComparisonEntry, compare
from dyno.bench.measure.result_metrics import with_accuracy
from dyno.errors import InvalidComparison, NoResult, ResultNotReady, UnknownComparison, UnknownJob
from dyno.formatting import format_quantity, ratio_in_words
from dyno.models.comparison import Compared, CompareResults, CompareSpecs, Comparison, UnfinishedComparison, job_of
from dyno.models.processor_names import model_name
from dyno.models.spec import InterleavedSpec
from dyno.store.jobs import Comparisons
from service import auth, dependencies, middleware, problems, streaming, submission, validation
from service.state import State

CHART_WIDTH, CHART_LEFT, CHART_RIGHT = 960, 270, 270  # widths of the chart, of the names and of the verdicts
ROW_HEIGHT, CHART_TOP, CHART_BOTTOM, BAR_HEIGHT = 52, 64, 48, 22
LOG_FROM = 20.0  # ratio of largest to smallest value: from here the smallest linear bar would be a sliver
COLOURS = ("#3182bd", "#c8641e", "#2b8a6b", "#a9609f", "#8a7a1f")
INK, FAINT = "#767676", "#a0a0a0"
NAME_LENGTH = 32


@dataclass(frozen=True)
class Axis:
    """`place(value)` is the x coordinate of a value; `ticks` are round values; bars begin at `start`."""

    start: float
    end: float
    log: bool
    ticks: Sequence[float]

    def place(self, value: float) -> float:
        low, high, at = self.start, self.end, min(max(value, self.start), self.end)
        share = math.log(at / low) / math.log(high / low) if self.log else (at - low) / (high - low)
        return CHART_LEFT + share * (CHART_WIDTH - CHART_LEFT - CHART_RIGHT)


def bar_chart(comparison: Comparison) -> str:
    """The SVG, as text."""
    results = comparison.results
    height = CHART_TOP + ROW_HEIGHT * len(results) + CHART_BOTTOM
    root = ElementTree.Element(
        "svg",
        {
            **{
                "xmlns": "http://www.w3.org/2000/svg",
                "viewBox": f"0 0 {CHART_WIDTH} {height}",
                "width": str(CHART_WIDTH),
            },
            **{"height": str(height), "role": "img", "aria-labelledby": "title desc"},
            **{"font-family": "system-ui, sans-serif", "font-size": "13", "fill": INK},
        },
    )
    ElementTree.SubElement(root, "title", {"id": "title"}).text = _title(comparison)
    ElementTree.SubElement(root, "desc", {"id": "desc"}).text = " ".join(_sentence(comparison, r) for r in results)
    _text(root, 16, 26, _title(comparison), **{"font-size": "16"})
    axis = axis_for(
        [bound for result in results for bound in (result.value, result.low, result.high) if bound is not None]
    )
    better = f"{comparison.better} is better"
    _text(root, 16, 46, f"{better}; whiskers: {100 * comparison.confidence:.4g} % intervals" + ", log scale" * axis.log)
    _draw_ticks(root, axis, comparison.unit, height - CHART_BOTTOM)
    for row, result in enumerate(results):
        _draw_row(root, axis, result, CHART_TOP + ROW_HEIGHT * row, COLOURS[row % len(COLOURS)], comparison.unit)
    return ElementTree.tostring(root, encoding="unicode")


def axis_for(values: Sequence[float]) -> Axis:
    """A linear axis from zero; logarithmic, from the power of ten below, if all values are positive and far apart."""
    positive = [value for value in values if value > 0]
    highest, lowest = max(values, default=1.0), min(values, default=0.0)
    if positive and lowest >= 0 and highest / min(positive) >= LOG_FROM:
        first, last = math.floor(math.log10(min(positive))), math.ceil(math.log10(highest))
        step = math.ceil((last - first) / 8)
        ticks = [10.0**power for power in range(first, last + 1, step)]
        return Axis(10.0**first, 10.0**last, log=True, ticks=ticks)
    low, high = min(lowest, 0.0), max(highest, 0.0)
    step_size = _round_step((high - low) / 5 or 0.2)
    first, last = math.floor(low / step_size), math.ceil(high / step_size) or 1
    return Axis(first * step_size, last * step_size, log=False, ticks=[k * step_size for k in range(first, last + 1)])


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= least * (1 - 1e-9))


def _draw_ticks(root: ElementTree.Element, axis: Axis, unit: str, bottom: int) -> None:
    for tick in axis.ticks:
        x = f"{axis.place(tick):.1f}"
        line = {"x1": x, "x2": x, "y1": str(CHART_TOP - 4), "y2": str(bottom), "stroke": FAINT, "stroke-opacity": "0.4"}
        ElementTree.SubElement(root, "line", line)
        _text(
            root,
            axis.place(tick),
            bottom + 18,
            format_quantity(tick, unit),
            **{"text-anchor": "middle", "font-size": "11"},
        )


def _draw_row(root: ElementTree.Element, axis: Axis, result: Compared, top: int, colour: str, unit: str) -> None:
    name, middle = _name(result), top + ROW_HEIGHT / 2
    _text(root, 16, middle - 3, name)
    _text(root, 16, middle + 13, ", ".join((result.framework, _of(result), result.verdict)), **{"font-size": "11"})
    said_at = CHART_WIDTH - CHART_RIGHT + 16
    verdict = f" {result.ratio.verdict}" if result.ratio else ""
    _text(root, said_at, middle - 3, format_quantity(result.value, unit) + verdict)
    _text(root, said_at, middle + 13, _said(result, unit), **{"font-size": "11"})
    if result.value is None:
        return
    start, end = sorted((axis.place(0.0), axis.place(result.value)))
    bar = {
        "x": f"{start:.1f}",
        "y": f"{middle - BAR_HEIGHT / 2:.1f}",
        "width": f"{end - start:.1f}",
        "height": str(BAR_HEIGHT),
    }
    ElementTree.SubElement(root, "rect", {**bar, "fill": colour, "rx": "2"})
    if result.low is not None and result.high is not None:
        _draw_whisker(root, axis.place(result.low), axis.place(result.high), middle)


def _draw_whisker(root: ElementTree.Element, low: float, high: float, y: float) -> None:
    path = f"M{low:.1f} {y - 6:.1f}V{y + 6:.1f}M{low:.1f} {y:.1f}H{high:.1f}M{high:.1f} {y - 6:.1f}V{y + 6:.1f}"
    for stroke, width in (("#ffffff", "4"), ("#202020", "2")):  # seen on the bar and beside it, on light and dark
        ElementTree.SubElement(root, "path", {"d": path, "stroke": stroke, "stroke-width": width, "fill": "none"})


def _text(root: ElementTree.Element, x: float, y: float, text: str, **attributes: str) -> None:
    position = {"x": f"{x:.1f}", "y": f"{y:.1f}"}
    ElementTree.SubElement(root, "text", {**position, **attributes}).text = _printable(text)


def _title(comparison: Comparison) -> str:
    return _printable(f"{comparison.workload}: {comparison.metric} in {comparison.unit}")


def _sentence(comparison: Comparison, result: Compared) -> str:
    interval = ""
    if result.low is not None and result.high is not None:
        interval = (
            f" ({format_quantity(result.low, comparison.unit)} to {format_quantity(result.high, comparison.unit)})"
        )
    figure = f"{format_quantity(result.value, comparison.unit)}{interval}"
    said = _said(result, comparison.unit) + (f", {result.ratio.verdict}" if result.ratio else "")
    return _printable(f"{_name(result)}, {result.framework}: {figure}; {said}; {result.verdict}.")


def _said(result: Compared, unit: str) -> str:
    ratio = result.ratio
    if ratio is None:
        return "baseline"
    if ratio.value is None:
        return "no ratio"
    interval = f" ({ratio.low:.4g} to {ratio.high:.4g})" if ratio.low is not None and ratio.high is not None else ""
    return f"{ratio.value:.4g} {ratio_in_words(unit)}{interval}"


def _of(result: Compared) -> str:
    return result.arm or result.job[-8:]


def _name(result: Compared) -> str:
    name = model_name(result.device_model or result.device)
    return name if len(name) <= NAME_LENGTH else f"{name[: NAME_LENGTH - 1]}…"


def _printable(text: str) -> str:
    """Replace control characters, which XML can't contain even escaped."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


router = APIRouter(prefix="/v1/comparisons", tags=["comparisons"])

_SVG: dict[str, Any] = {"image/svg+xml": {"schema": {"type": "string"}}}
# FastAPI would name this schema after the operation id; generated clients know it by this title.
_TITLE: dict[str, Any] = {"application/json": {"schema": {"title": "Response Show V1 Comparisons  Comparison Id  Get"}}}


def _body() -> dict[str, Any]:
    """The schema of the body: results, or two specs as POST /v1/jobs accepts them."""
    in_turns = CompareSpecs.model_json_schema()
    in_turns["properties"]["specs"]["items"] = {"$ref": "#/components/schemas/SubmitJob"}
    return {"application/json": {"schema": {"oneOf": [CompareResults.model_json_schema(), in_turns]}}}


async def _asked(request: Request, state: dependencies.StateDep) -> CompareResults | validation.ComparisonRequest:
    document, errors = await validation.read_json(request, state.settings)
    if "specs" in document and "jobs" not in document:
        return validation.validate_comparison(document, errors, state.workloads)
    return validation.validate_model(CompareResults, document, errors, InvalidComparison)


async def _comparisons(state: dependencies.StateDep) -> Comparisons:
    return Comparisons(state.client, state.settings, state.jobs.viewer)


Asked = Annotated[CompareResults | validation.ComparisonRequest, Depends(_asked)]
ComparisonsDep = Annotated[Comparisons, Depends(_comparisons)]


@router.post(
    "",
    operation_id="createComparison",
    summary="Compare results or two specs",
    status_code=201,
    response_model=Comparison,
    openapi_extra={"requestBody": {"required": True, "content": _body()}},
    responses={
        201: dependencies.sends("Location"),
        202: {
            "model": UnfinishedComparison,
            "description": "The job that runs the two specs is queued",
            **dependencies.sends("Location", "RetryAfter", "Replayed"),
        },
        **problems.documented(
            *("malformed-body", "job-not-found", "body-timeout", "result-not-ready", "no-result", "not-comparable"),
            *("job-expired", "body-too-large", "unsupported-media-type", "invalid-comparison", "invalid-spec"),
            *("does-not-fit", "exceeds-timeout", "unsupported", "no-device-fits", "idempotency-key-reused"),
            *("queue-full", "record-unreadable", "priority-not-allowed", "store-unfit"),
        ),
    },
)
@auth.requires(auth.SUBMIT, auth.OWN)
async def create(
    body: Asked,
    state: dependencies.StateDep,
    comparisons: ComparisonsDep,
    response: Response,
    idempotency_key: dependencies.IdempotencyKey = None,
) -> Comparison | Response:
    """Compare results with one of them, or run two specs in turns on one device and compare their results.

    Whatever differs is in `differences`. Only results without a shared metric are refused (`not-comparable`).
    A comparison is kept as long as its jobs. `Idempotency-Key` only affects requests with two specs.
    """
    if isinstance(body, validation.ComparisonRequest):
        return await _begun(body, state, idempotency_key)
    comparison = (await compare_results_of(body, state)).model_copy(update={"owner": state.jobs.viewer.owner})
    await state.readiness.require_fit()
    await comparisons.keep(comparison)
    response.headers["Location"] = comparison.urls.self
    return comparison


async def _begun(request: validation.ComparisonRequest, state: State, idempotency_key: str | None) -> Response:
    submitted = await submission.submit(state, request, idempotency_key)
    begun = submission.unfinished_comparison(submitted.job, request.spec, submitted.job.failure)
    headers = {"Location": begun.urls.self, "Retry-After": str(streaming.POLL_AFTER_S)}
    if submitted.replayed:
        headers["Idempotent-Replayed"] = "true"
    return Response(begun.model_dump_json(by_alias=True), 202, headers, "application/json")


async def compare_results_of(request: CompareResults, state: State) -> Comparison:
    """The comparison, which isn't stored."""
    entries = [
        ComparisonEntry(await state.jobs.get(job_id), await state.jobs.result(job_id)) for job_id in request.jobs
    ]
    workload = state.workloads.get(entries[0].result.workload)
    return await anyio.to_thread.run_sync(_compared, request, entries, workload)  # in a thread: it imports SciPy


def _compared(request: CompareResults, entries: Sequence[ComparisonEntry], workload: Workload | None) -> Comparison:
    with_accuracies = [replace(entry, result=with_accuracy(entry.result)) for entry in entries]
    return compare(request, with_accuracies, workload, datetime.now(UTC), base=request.base_index)


async def _found(
    comparison_id: str, state: dependencies.StateDep, comparisons: ComparisonsDep
) -> Comparison | UnfinishedComparison:
    """The stored comparison of results, or the comparison of two specs, made from their job."""
    try:
        return await comparisons.get(comparison_id)
    except UnknownComparison as unknown:
        try:
            job = await state.jobs.get(job_of(comparison_id))
        except UnknownJob:
            raise unknown from None
        if not isinstance(job.spec, InterleavedSpec):
            raise
    return await submission.read_comparison(job, job.spec, state)


Found = Annotated[Comparison | UnfinishedComparison, Depends(_found)]


@router.get(
    "/{comparison_id}",
    operation_id="getComparison",
    summary="Read a comparison",
    responses={
        200: {"content": _TITLE},
        **problems.documented("comparison-not-found", "record-unreadable"),
    },
)
@auth.requires(auth.READ, auth.OWN)
async def show(stored: Found) -> Comparison | UnfinishedComparison:
    """Read a comparison. Later results don't change it. While two specs still run, it has their job's progress."""
    return stored


@router.get(
    "/{comparison_id}/bars.svg",
    operation_id="getBars",
    summary="Draw a comparison",
    response_class=Response,
    responses={
        200: {
            "description": "A bar for each result, with its interval",
            "content": _SVG,
            **dependencies.sends("Vary"),
        },
        **problems.documented("comparison-not-found", "result-not-ready", "no-result", "record-unreadable"),
    },
)
@auth.requires(auth.READ, auth.OWN)
async def picture(stored: Found) -> Response:
    """Draw the results as bars with their intervals, on a logarithmic axis if they are far apart."""
    if isinstance(stored, UnfinishedComparison):
        kind = ResultNotReady if stored.status == "running" else NoResult
        raise kind(f"{stored.id} is {stored.status} and has no results to draw")
    headers = {
        "Cache-Control": "private, max-age=3600",
        "Vary": "Authorization",  # else a browser would show one key's chart to the next key
        **middleware.SANDBOXED,  # the chart has device names, which are foreign text
    }
    return Response(bar_chart(stored), media_type="image/svg+xml", headers=headers)
