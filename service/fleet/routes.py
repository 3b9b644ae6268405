"""The fleet: live workers and their devices."""

from collections.abc import Collection
from typing import Annotated

from fastapi import APIRouter, Path

from dyno.errors import UnknownDevice
from dyno.logging import audit
from dyno.models.inventory import Cordon, DeviceList, WorkerList
from dyno.store import fleet, placement
from service import auth, dependencies, submission
from service.problems import documented
from service.state import State

router = APIRouter(prefix="/v1", tags=["fleet"])


DeviceName = Annotated[str, Path(description="With its host, as in `cpu:0-1@host`, or without if that is unique")]


@router.get("/devices", operation_id="listDevices", summary="List devices")
@auth.requires(auth.READ, auth.EVERYBODYS)
async def devices(state: dependencies.StateDep) -> DeviceList:
    """List the devices of all live workers with their states, and the names of cordoned devices that are away."""
    live = await fleet.devices(state.client, state.settings)
    cordoned = await fleet.cordoned(state.client, state.settings)
    return DeviceList(data=live, cordoned_away=sorted(cordoned - {device.full_id for device in live}))


@router.post(
    "/devices/{device_id}/cordon",
    operation_id="cordonDevice",
    summary="Cordon a device",
    responses=documented("device-not-found"),
)
@auth.requires(auth.ADMIN, auth.EVERYBODYS)
async def cordon_device(device_id: DeviceName, state: dependencies.StateDep, caller: auth.CallerDep) -> Cordon:
    """Stop a device from taking jobs until it is uncordoned. A restart of the worker doesn't remove the cordon."""
    full_id = _named(device_id, {device.full_id for device in await fleet.devices(state.client, state.settings)})
    await fleet.cordon(state.client, state.settings, full_id)
    await state.devices.read(max_age_s=0)
    audit("device-cordoned", caller.name, device=full_id)
    return Cordon(device=full_id, cordoned=True)


@router.post(
    "/devices/{device_id}/uncordon",
    operation_id="uncordonDevice",
    summary="Uncordon a device",
    responses=documented("device-not-found"),
)
@auth.requires(auth.ADMIN, auth.EVERYBODYS)
async def uncordon_device(device_id: DeviceName, state: dependencies.StateDep, caller: auth.CallerDep) -> Cordon:
    """Let a device take jobs again; queued jobs start at once. The device's worker need not be live."""
    live = {device.full_id: device for device in await fleet.devices(state.client, state.settings)}
    full_id = _named(device_id, live.keys() | await fleet.cordoned(state.client, state.settings))
    await fleet.uncordon(state.client, state.settings, full_id)
    await state.devices.read(max_age_s=0)
    audit("device-uncordoned", caller.name, device=full_id)
    if full_id in live:
        await submission.wake_up(state, placement.queues_served(live[full_id])[0])
    return Cordon(device=full_id, cordoned=False)


async def known_device(name: str, state: State) -> str:
    """The full id of a live or cordoned device. Raises UnknownDevice."""
    live = {device.full_id for device in await fleet.devices(state.client, state.settings)}
    return _named(name, live | await fleet.cordoned(state.client, state.settings))


def _named(name: str, full_ids: Collection[str]) -> str:
    """The full id of the device `name`. Raises UnknownDevice if none or several match."""
    matches = sorted(full_id for full_id in full_ids if name in (full_id, full_id.partition("@")[0]))
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UnknownDevice(f'several hosts have a device "{name}"; use one of {", ".join(matches)}')
    known_devices = ", ".join(sorted(full_ids)) or "none"
    raise UnknownDevice(f'no live worker has the device "{name[:64]}"; devices: {known_devices}')


@router.get("/workers", operation_id="listWorkers", summary="List workers")
@auth.requires(auth.READ, auth.OWN)
async def workers(state: dependencies.StateDep) -> WorkerList:
    """List all live workers. A worker's `job` is null if the job belongs to another key."""
    records = await fleet.workers(state.client, state.settings)
    seen = await state.jobs.visible({record.job for record in records if record.job is not None})
    hidden = {"job": None}
    return WorkerList(data=[record if record.job in seen else record.model_copy(update=hidden) for record in records])
