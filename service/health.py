"""Whether the service lives, and whether it can take jobs."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from dyno.errors import StoreUnavailable, StoreUnfit
from dyno.store.connect import check_server_async
from service.dependencies import StateDep
from service.errors import NotReady
from service.problems import documented

router = APIRouter(tags=["health"])


class Health(BaseModel):
    status: Literal["ok"] = "ok"


@router.get("/livez", responses=documented())
async def livez() -> Health:
    """Answers as long as the process does; asks nobody else."""
    return Health()


@router.get("/readyz", responses=documented("not-ready"))
async def readyz(state: StateDep) -> Health:
    """Whether a job can be taken and kept: the store is reachable, persists and doesn't evict."""
    try:
        reasons = await check_server_async(state.client)
    except (StoreUnavailable, StoreUnfit) as error:
        reasons = [error.detail]
    if reasons:
        raise NotReady("; ".join(reasons))
    return Health()
