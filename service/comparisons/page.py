"""Comparisons in words, as pictures and as tables: of the results that the address names, and stored ones."""

from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from dyno.models.comparison import Comparative, Compared, CompareResults, Comparison, UnfinishedComparison, result_names
from dyno.models.job import Status
from dyno.models.result import ResultSummary
from dyno.store.records import read_result_summaries
from service import problems
from service.auth import OWN, READ, CallerDep, requires
from service.comparisons.routes import Found, compare_results_of
from service.dashboard import pictures
from service.dashboard.rendering import PageRoute, page, see_other
from service.dependencies import StateDep
from service.state import State
from service.validation import validate_model

router = APIRouter(include_in_schema=False, route_class=PageRoute)

IN_WORDS = {
    Comparative.FASTER: "better than the base",
    Comparative.SLOWER: "worse than the base",
    Comparative.SAME: "the same as the base, within the margin",
    Comparative.INCONCLUSIVE: "more runs are needed",
}


@router.get("/compare")
@requires(READ, OWN)
async def show(
    request: Request,
    state: StateDep,
    caller: CallerDep,
    job: Annotated[list[str], Query()] = [],  # noqa: B006 - FastAPI copies it
    base: str = "",
    metric: str = "",
) -> Response:
    """Compare the jobs of the query. With fewer than two, lead to the list in which to choose them."""
    if len(job) < 2:
        return see_other(f"/jobs?{urlencode([('status', Status.SUCCEEDED), *(('compare', each) for each in job)])}")
    given = {"jobs": job, "base": base or 0, "metric": metric or None}
    asked = validate_model(CompareResults, given, [], problems.InvalidRequest)
    comparison = await compare_results_of(asked, state)
    links = {each: urlencode([*(("job", one) for one in job), ("base", each)]) for each in job}
    context = await comparison_context(comparison, state) | {"links": links}
    return page(request, caller, "compare.html", context, file_name=f"{comparison.workload}-compared")


@router.get("/comparisons/{comparison_id}")
@requires(READ, OWN)
async def show_stored(request: Request, state: StateDep, caller: CallerDep, found: Found) -> Response:
    """A stored comparison, or the page of the job that still makes it."""
    if isinstance(found, UnfinishedComparison):
        return see_other(f"/jobs/{found.job}")
    return page(request, caller, "compare.html", await comparison_context(found, state), file_name=found.id)


async def comparison_context(found: Comparison, state: State) -> dict[str, Any]:
    """What the template of a comparison needs."""
    names = result_names(found)
    rows = list(zip(found.results, names, strict=True))
    summaries = await read_result_summaries(state.client, state.settings, [each.job for each in found.results])
    runs = [_by_run(each, summary, found.metric) for each, summary in zip(found.results, summaries, strict=True)]
    bounded = [
        pictures.Bounded(name, each.value, each.low, each.high, by_run)
        for (each, name), by_run in zip(rows, runs, strict=True)
    ]
    ratios = [(name, each.ratio) for each, name in rows if each.ratio]
    control = [(f"{names[found.base]} again", found.control)] if found.control else []
    return {
        "comparison": found,
        "rows": rows,
        "names": names,
        "in_words": IN_WORDS,
        "links": {},
        "pictures": {
            "results": pictures.intervals(f"{found.metric} of each result", bounded, found.unit),
            "ratios": pictures.ratios([*ratios, *control], found.margin),
        },
    }


def _by_run(compared: Compared, summary: ResultSummary | None, name: str) -> Sequence[float]:
    """The figures of the result's runs; none if it has gone."""
    of_second = summary is not None and compared.arm == "second" and bool(summary.arms)
    own = summary.arms[0] if summary and of_second else summary
    metric = own.metric(name) if own else None
    return metric.by_run if metric else ()
