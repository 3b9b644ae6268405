"""Comparisons in words, as pictures and as tables: of the results that the address names, and stored ones."""

from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from dyno.models.comparison import Comparative, CompareResults, Comparison, UnfinishedComparison, result_names
from service import problems
from service.auth import OWN, READ, CallerDep, requires
from service.dashboard import pictures
from service.dashboard.rendering import PageRoute, page, see_other
from service.dependencies import StateDep
from service.routes.comparisons import Found, compare_results_of
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
    """Compare the jobs of the query."""
    given = {"jobs": job, "base": base or 0, "metric": metric or None}
    asked = validate_model(CompareResults, given, [], problems.InvalidRequest)
    comparison = await compare_results_of(asked, state)
    links = {each: urlencode([*(("job", one) for one in job), ("base", each)]) for each in job}
    context = comparison_context(comparison) | {"links": links}
    return page(request, caller, "compare.html", context, file_name=f"{comparison.workload}-compared")


@router.get("/comparisons/{comparison_id}")
@requires(READ, OWN)
async def show_stored(request: Request, caller: CallerDep, found: Found) -> Response:
    """A stored comparison, or the page of the job that still makes it."""
    if isinstance(found, UnfinishedComparison):
        return see_other(f"/jobs/{found.job}")
    return page(request, caller, "compare.html", comparison_context(found), file_name=found.id)


def comparison_context(found: Comparison) -> dict[str, Any]:
    """What the template of a comparison needs."""
    names = result_names(found)
    rows = list(zip(found.results, names, strict=True))
    bounded = [pictures.Bounded(name, each.value, each.low, each.high) for each, name in rows]
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
