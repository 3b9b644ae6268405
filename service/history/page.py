"""Series of results over time with their changes, baselines, and alarms to acknowledge."""

from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Request, Response

from dyno.charts import several as charts
from dyno.logging import audit
from dyno.models.baseline import Baseline
from dyno.models.history import ResultSeries
from service import submission
from service.auth import OWN, READ, SUBMIT, CallerDep, requires
from service.dashboard.rendering import PageRoute, page, see_other, unusual_params
from service.dependencies import StateDep
from service.history import result_history

router = APIRouter(prefix="/history", include_in_schema=False, route_class=PageRoute)

FILTERS = ("workload", "device", "label", "metric", "cursor")
MOST_SERIES = 24  # on a page: the series with the newest results
MOST_RESULTS = 250  # on a page; takes about 70 ms with one series


@router.get("")
@requires(READ, OWN)
async def show(
    request: Request,
    state: StateDep,
    caller: CallerDep,
    workload: str = "",
    device: str = "",
    label: str = "",
    metric: str = "",
    cursor: str = "",
) -> Response:
    """The series of the newest results that match the query."""
    filters = {"workload": workload, "device": device, "label": label, "metric": metric, "cursor": cursor}
    given: dict[str, Any] = {name: value for name, value in filters.items() if value}
    history = await result_history.read_history(state, **{"metric": None, **given}, limit=MOST_RESULTS)
    newest = sorted(history.series, key=lambda series: series.points[-1].time, reverse=True)
    several = [series for series in newest if len(series.points) > 1]
    saved = await submission.baselines_of(state).list()
    lines = {series.series_id: _lines(series, saved) for series in several[:MOST_SERIES]}
    older = urlencode(given | {"cursor": history.next_cursor}) if history.next_cursor else None
    context = {
        "history": history,
        "series": several[:MOST_SERIES],
        "pictures": {
            series.series_id: charts.history(series, lines[series.series_id]) for series in several[:MOST_SERIES]
        },
        "lines": lines,
        "baselines": saved,
        "more": len(several) - MOST_SERIES,
        "single": [series for series in newest if len(series.points) == 1][:MOST_SERIES],
        "unusual": partial(unusual_params, state.workloads),
        "wanted": filters,
        "workloads": list(state.workloads),
        "query": urlencode(given),
        "older": older,
    }
    return page(request, caller, "history.html", context, file_name="history")


def _lines(series: ResultSeries, saved: Iterable[Baseline]) -> dict[str, float]:
    """The values, by name, of the baselines whose jobs are points of the series."""
    values = {point.job: point.adjusted_value or point.value for point in series.points}
    return {
        baseline.name: values[baseline.job]
        for baseline in saved
        if baseline.metric == series.metric and baseline.job in values
    }


@router.post("/alarms/{alarm_id}/acknowledge")
@requires(SUBMIT, OWN)
async def acknowledge(
    alarm_id: Annotated[str, Path(max_length=100)], request: Request, state: StateDep, caller: CallerDep
) -> Response:
    """Acknowledge an alarm of the history that the query selects."""
    filters: dict[str, Any] = {name: value for name, value in request.query_params.items() if name in FILTERS}
    history = await result_history.read_history(state, **{"metric": None, **filters})
    alarm = await result_history.acknowledge(state, alarm_id, history)
    audit("alarm-acknowledged", caller.name, alarm=alarm.id)
    return see_other(f"/history?{request.url.query}")
