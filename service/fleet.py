"""The fleet: the devices that live workers offer, and the workers."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from dyno.store import fleet
from dyno.store.fleet import DeviceStatus, WorkerRecord
from service.dependencies import StateDep
from service.problems import documented

router = APIRouter(prefix="/v1", tags=["fleet"])


class DeviceList(BaseModel):
    data: list[DeviceStatus]


class WorkerList(BaseModel):
    data: list[WorkerRecord]


@router.get("/devices", responses=documented("store-unavailable"))
async def devices(state: StateDep) -> DeviceList:
    """The devices of all live workers, with what they are doing."""
    return DeviceList(data=await fleet.devices(state.client, state.settings))


@router.get("/workers", responses=documented("store-unavailable"))
async def workers(state: StateDep) -> WorkerList:
    """All live workers."""
    return WorkerList(data=await fleet.workers(state.client, state.settings))
