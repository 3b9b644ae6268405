"""All pages of the dashboard, and the files that they load."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Response

from service import auth, dependencies
from service.dashboard import (
    comparison_page,
    fleet_page,
    history_page,
    job_page,
    session,
    start_page,
    sweep_pages,
    workload_pages,
)
from service.static_files import StaticFile, file_response, read_files

router = APIRouter(include_in_schema=False)
for part in (start_page, job_page, comparison_page, sweep_pages, history_page, workload_pages, fleet_page, session):
    router.include_router(part.router)


@cache
def assets() -> Mapping[str, StaticFile]:
    return read_files((files("service.dashboard") / "static").iterdir())


@router.get("/static/{name}")
@auth.requires(auth.Keyless.TO_ALL, auth.EVERYBODYS)
async def asset(name: str, if_none_match: dependencies.IfNoneMatch) -> Response:
    """A script, a style sheet or an icon."""
    return file_response(assets().get(name), if_none_match)
