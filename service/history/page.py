"""Series of results over time with their changes, baselines, and alarms to acknowledge."""

from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Request, Response

from dyno.logging import audit
from dyno.models.baseline import Baseline
from dyno.models.history import ResultSeries
from service import submission
from service.auth import OWN, READ, SUBMIT, CallerDep, requires
from service.dashboard import pictures
from service.dashboard.rendering import PageRoute, page, see_other, unusual_params
from service.dependencies import StateDep
from service.history import result_history

router = APIRouter(prefix="/history", include_in_schema=False, route_class=PageRoute)

FILTERS = ("workload", "device", "label", "metric", "cursor")
MOST_SERIES = 24  # of a page, those with the newest results
MOST_RESULTS = 250  # of a page, which takes about 70 ms with one series


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
    wanted = {"workload": workload, "device": device, "label": label, "metric": metric, "cursor": cursor}
    known: dict[str, Any] = {name: value for name, value in wanted.items() if value}
    found = await result_history.read_history(state, **{"metric": None, **known}, limit=MOST_RESULTS)
    newest = sorted(found.series, key=lambda series: series.points[-1].time, reverse=True)
    several = [each for each in newest if len(each.points) > 1]
    saved = await submission.baselines_of(state).list()
    lines = {each.series_id: _lines(each, saved) for each in several[:MOST_SERIES]}
    older = urlencode(known | {"cursor": found.next_cursor}) if found.next_cursor else None
    context = {
        "history": found,
        "series": several[:MOST_SERIES],
        "pictures": {each.series_id: pictures.history(each, lines[each.series_id]) for each in several[:MOST_SERIES]},
        "lines": lines,
        "baselines": saved,
        "more": len(several) - MOST_SERIES,
        "single": [each for each in newest if len(each.points) == 1][:MOST_SERIES],
        "unusual": partial(unusual_params, state.workloads),
        "wanted": wanted,
        "workloads": list(state.workloads),
        "query": urlencode(known),
        "older": older,
    }
    return page(request, caller, "history.html", context, file_name="history")


def _lines(series: ResultSeries, saved: Iterable[Baseline]) -> dict[str, float]:
    """The values of the baselines whose jobs are points of the series, by name."""
    values = {point.job: point.adjusted_value or point.value for point in series.points}
    return {each.name: values[each.job] for each in saved if each.metric == series.metric and each.job in values}


@router.post("/alarms/{alarm_id}/acknowledge")
@requires(SUBMIT, OWN)
async def acknowledge(
    alarm_id: Annotated[str, Path(max_length=100)], request: Request, state: StateDep, caller: CallerDep
) -> Response:
    """Acknowledge an alarm of the history that the query selects."""
    known: dict[str, Any] = {name: value for name, value in request.query_params.items() if name in FILTERS}
    found = await result_history.read_history(state, **{"metric": None, **known})
    alarm = await result_history.acknowledge(state, alarm_id, found)
    audit("alarm-acknowledged", caller.name, alarm=alarm.id)
    return see_other(f"/history?{request.url.query}")
