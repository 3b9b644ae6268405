"""All pages of the dashboard, and the files that they load."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Response

from service import auth, dependencies
from service.advice import page as advice_page
from service.comparisons import page as comparison_page
from service.dashboard import session
from service.fleet import page as fleet_page
from service.history import page as history_page
from service.home import page as start_page
from service.jobs import page as job_page
from service.schedules import page as schedules_page
from service.static_files import StaticFile, file_response, read_files
from service.sweeps import page as sweep_page
from service.workloads import page as workload_page

router = APIRouter(include_in_schema=False)
of_results = (job_page, comparison_page, history_page, advice_page, sweep_page)
of_forms = (workload_page, schedules_page, fleet_page, session)
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
