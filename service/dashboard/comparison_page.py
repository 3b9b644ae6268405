"""Results compared with one of them: in words, as a picture and as a table. The address has the jobs."""

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from dyno.models.comparison import Comparative, CompareResults, result_names
from service import problems
from service.auth import OWN, READ, CallerDep, requires
from service.dashboard import pictures
from service.dashboard.rendering import PageRoute, page
from service.dependencies import StateDep
from service.routes.comparisons import compare_results_of
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
    names = result_names(comparison)
    links = {each: urlencode([*(("job", one) for one in job), ("base", each)]) for each in job}
    drawn = [row.ratio and pictures.ratio(row.ratio, comparison.margin) for row in comparison.results]
    context = {
        "comparison": comparison,
        "rows": list(zip(comparison.results, names, drawn, strict=True)),
        "names": names,
        "picture": pictures.compared(comparison, names),
        "in_words": IN_WORDS,
        "links": links,
    }
    return page(request, caller, "compare.html", context)
