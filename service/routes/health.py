"""Whether the service lives, and whether it can take jobs."""

from __future__ import annotations

from typing import Literal

import anyio
import anyio.to_thread
from fastapi import APIRouter, Request
from pydantic import BaseModel

from dyno.errors import ArtifactStoreUnavailable, DynoError, StoreUnavailable, StoreUnfit
from dyno.store.redis import check_server_async
from service.access import is_known
from service.dependencies import StateDep
from service.errors import NotReady
from service.problems import documented
from service.state import State

FILES_WITHIN_S = 2.0

router = APIRouter(tags=["health"])


class Health(BaseModel):
    status: Literal["ok"] = "ok"


@router.get("/livez", responses=documented())
async def livez() -> Health:
    """Answers as long as the process does; asks nobody else."""
    return Health()


@router.get("/readyz", responses=documented("not-ready"))
async def readyz(request: Request, state: StateDep) -> Health:
    """Whether a job can be taken and kept: the store is reachable, persists and doesn't evict, and takes files.

    Whoever needs a key and has none is told which of the two is amiss, and nothing of where it is.
    """
    reasons = await _of_store(state) + await _of_files(state)
    if reasons:
        known = await is_known(request, state)
        raise NotReady("; ".join(dict.fromkeys(each.detail if known else each.code for each in reasons)))
    return Health()


async def _of_store(state: State) -> list[DynoError]:
    try:
        return [StoreUnfit(each) for each in await check_server_async(state.client, state.settings)]
    except (StoreUnavailable, StoreUnfit) as error:
        return [error]


async def _of_files(state: State) -> list[DynoError]:
    """On a thread, and one at a time: a folder on a mount that hangs must not take all threads, nor this answer."""
    try:
        with anyio.fail_after(FILES_WITHIN_S):
            await anyio.to_thread.run_sync(state.artifacts.check, abandon_on_cancel=True, limiter=state.checking)
    except ArtifactStoreUnavailable as error:
        return [error]
    except TimeoutError:
        return [ArtifactStoreUnavailable(f"the artifact store gave no answer in {FILES_WITHIN_S:g} s")]
    return []
