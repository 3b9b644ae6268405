"""All pages of the dashboard, and the files that they load."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Response

from service import auth, dependencies
from service.dashboard import compare, fleet, history, home, job, session, sweeps, workloads
from service.static_files import StaticFile, file_response, read_files

router = APIRouter(include_in_schema=False)
for part in (home, job, compare, sweeps, history, workloads, fleet, session):
    router.include_router(part.router)


@cache
def assets() -> Mapping[str, StaticFile]:
    return read_files((files("service.dashboard") / "static").iterdir())


@router.get("/static/{name}")
@auth.requires(auth.Keyless.TO_ALL, auth.EVERYBODYS)
async def asset(name: str, if_none_match: dependencies.IfNoneMatch) -> Response:
    """A script, a style sheet or an icon."""
    return file_response(assets().get(name), if_none_match)
