"""Comparisons in words, pictures and tables: new comparisons of the results in the URL, or stored comparisons."""

from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from dyno.charts import several
from dyno.formatting import ratio_in_words
from dyno.models.comparison import Comparative, Compared, CompareResults, Comparison, UnfinishedComparison, result_names
from dyno.models.job import Status
from dyno.models.result import ResultSummary
from dyno.store.stored_results import read_result_summaries
from service import problems
from service.auth import OWN, READ, CallerDep, requires
from service.comparisons.routes import Found, compare_results_of
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
    """Compare the jobs of the query. With fewer than two jobs, redirect to the list in which to choose them."""
    if len(job) < 2:
        return see_other(f"/jobs?{urlencode([('status', Status.SUCCEEDED), *(('compare', job_id) for job_id in job)])}")
    given = {"jobs": job, "base": base or 0, "metric": metric or None}
    selection = validate_model(CompareResults, given, [], problems.InvalidRequest)
    comparison = await compare_results_of(selection, state)
    links = {base_id: urlencode([*(("job", job_id) for job_id in job), ("base", base_id)]) for base_id in job}
    context = await comparison_context(comparison, state) | {"links": links}
    return page(request, caller, "compare.html", context, file_name=f"{comparison.workload}-compared")


@router.get("/comparisons/{comparison_id}")
@requires(READ, OWN)
async def show_stored(request: Request, state: StateDep, caller: CallerDep, stored: Found) -> Response:
    """A stored comparison, or a redirect to the page of the job that still runs its specs."""
    if isinstance(stored, UnfinishedComparison):
        return see_other(f"/jobs/{stored.job}")
    return page(request, caller, "compare.html", await comparison_context(stored, state), file_name=stored.id)


async def comparison_context(comparison: Comparison, state: State) -> dict[str, Any]:
    """The context of a comparison's template."""
    names = result_names(comparison)
    rows = list(zip(comparison.results, names, strict=True))
    summaries = await read_result_summaries(
        state.client, state.settings, [compared.job for compared in comparison.results]
    )
    runs = [
        _by_run(compared, summary, comparison.metric)
        for compared, summary in zip(comparison.results, summaries, strict=True)
    ]
    ratios = [(name, compared.ratio) for compared, name in rows if compared.ratio]
    control = [(f"{names[comparison.base]} again", comparison.control)] if comparison.control else []
    return {
        "comparison": comparison,
        "rows": rows,
        "names": names,
        "in_words": IN_WORDS,
        "links": {},
        "pictures": {
            "results": several.comparison(comparison, names, runs),
            "ratios": several.ratios([*ratios, *control], comparison.margin, ratio_in_words(comparison.unit)),
        },
    }


def _by_run(compared: Compared, summary: ResultSummary | None, name: str) -> Sequence[float]:
    """The figures of the result's runs; empty if the result is gone."""
    of_second = summary is not None and compared.arm == "second" and bool(summary.arms)
    of_arm = summary.arms[0] if summary and of_second else summary
    metric = of_arm.metric(name) if of_arm else None
    return metric.by_run if metric else ()
