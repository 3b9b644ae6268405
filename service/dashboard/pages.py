"""All pages of the dashboard, and the files that they load."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Response

from service import auth, dependencies
from service.dashboard import (
    advice_page,
    comparison_page,
    fleet_page,
    history_page,
    job_page,
    schedules_page,
    session,
    start_page,
    sweep_form,
    sweep_pages,
    workload_pages,
)
from service.static_files import StaticFile, file_response, read_files

router = APIRouter(include_in_schema=False)
of_results = (job_page, comparison_page, history_page, advice_page, sweep_pages)
of_forms = (workload_pages, sweep_form, schedules_page, fleet_page, session)
for part in (start_page, *of_results, *of_forms):
    router.include_router(part.router)


@cache
def assets() -> Mapping[str, StaticFile]:
    return read_files((files("service.dashboard") / "static").iterdir())


@router.get("/static/{name}")
@auth.requires(auth.Keyless.TO_ALL, auth.EVERYBODYS)
async def asset(name: str, if_none_match: dependencies.IfNoneMatch) -> Response:
    """A script, a style sheet or an icon."""
    return file_response(assets().get(name), if_none_match)
