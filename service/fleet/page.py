"""The fleet: devices to cordon, workers. For admins: API keys."""

import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response

from dyno.charts.roofline import RooflineWork, roofline, works_of
from dyno.errors import InvalidKey, NoResult, RecordUnreadable, UnknownKey
from dyno.models.api_key import ApiKey, CreatedKey, NewKey
from dyno.models.job import Status
from service.auth import ADMIN, EVERYBODYS, OWN, READ, Caller, CallerDep, requires
from service.dashboard.forms import as_value, read_form
from service.dashboard.rendering import PageRoute, page, see_other, spec_text, unusual_params
from service.dependencies import StateDep
from service.fleet import routes as fleet_routes
from service.keys import routes as key_routes
from service.state import State
from service.validation import validate_model

MOST_RESULTS = 50  # of a device that its page reads

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/fleet")
@requires(READ, OWN)
async def show(request: Request, state: StateDep, caller: CallerDep) -> Response:
    """All live devices and workers, and cordoned devices without a live worker."""
    context = {
        "devices": await fleet_routes.devices(state),
        "workers": await fleet_routes.workers(state),
        "may_cordon": ADMIN in caller.scope.implied,
        "quote": quote,
    }
    return page(request, caller, "fleet.html", context)


@router.get("/fleet/{device_id}")
@requires(READ, OWN)
async def show_device(
    device_id: fleet_routes.DeviceName, request: Request, state: StateDep, caller: CallerDep
) -> Response:
    """The newest result of each kind of work on the device, among its newest results, under the device's roof."""
    jobs = (await state.jobs.list(status=Status.SUCCEEDED, device=device_id, limit=MOST_RESULTS)).data
    if not jobs:  # else it is known, even if its worker is gone
        await fleet_routes.known_device(device_id, state)
    newest: dict[str, tuple[RooflineWork, str]] = {}
    for job in jobs:
        name = spec_text(job.spec, unusual_params(state.workloads, job.spec) | {"framework": job.spec.framework})
        with suppress(NoResult, RecordUnreadable):
            for work in works_of(await state.jobs.result(job.id), name):
                newest.setdefault(work.name, (work, job.id))
    works = sorted(newest.values())
    context = {
        "device": device_id,
        "works": works,
        "pictures": {"roofline": roofline(f"Roofline of {device_id}", [work for work, _ in works])},
    }
    return page(request, caller, "device.html", context, file_name=re.sub(r"[^\w.-]+", "-", device_id))


@router.post("/fleet/{device_id}/cordon")
@requires(ADMIN, EVERYBODYS)
async def cordon(device_id: fleet_routes.DeviceName, state: StateDep, caller: CallerDep) -> Response:
    """Stop the device from taking jobs."""
    await fleet_routes.cordon_device(device_id, state, caller)
    return see_other("/fleet")


@router.post("/fleet/{device_id}/uncordon")
@requires(ADMIN, EVERYBODYS)
async def uncordon(device_id: fleet_routes.DeviceName, state: StateDep, caller: CallerDep) -> Response:
    """Let the device take jobs again."""
    await fleet_routes.uncordon_device(device_id, state, caller)
    return see_other("/fleet")


@router.get("/keys")
@requires(ADMIN, EVERYBODYS)
async def keys(request: Request, state: StateDep, caller: CallerDep) -> Response:
    """All API keys, and the form for a new one."""
    return await _keys_page(request, state, caller)


@router.post("/keys")
@requires(ADMIN, EVERYBODYS)
async def create_key(request: Request, state: StateDep, caller: CallerDep) -> Response:
    """Create a key, and show its secret. No later page shows the secret."""
    given: dict[str, Any] = await read_form(request, state.settings)
    if "expires_in_s" in given:
        given["expires_in_s"] = as_value(given["expires_in_s"])
    created = refused = None
    try:
        new_key = validate_model(NewKey, given, [], InvalidKey)
        created = await key_routes.create_key(state, new_key, caller)
    except InvalidKey as invalid:
        refused = "; ".join(f"{error.pointer.strip('/')}: {error.detail}" for error in invalid.errors)
    return await _keys_page(request, state, caller, created, refused)


async def _keys_page(
    request: Request, state: State, caller: Caller, created: CreatedKey | None = None, refused: str | None = None
) -> Response:
    context = {
        "keys": await state.keys.list(),
        "limits_in_words": limits_in_words,
        "now": datetime.now(UTC),
        "created": created,
        "refused": refused,
    }
    return page(request, caller, "keys.html", context, 422 if refused else 201 if created else 200)


_LIMITS = {
    "queued_jobs": "queued jobs",
    "device_s_per_day": "device time a day in seconds",
    "requests_per_s": "requests a second",
    "expires_in_s": "seconds that results are kept",
}


def limits_in_words(key: ApiKey) -> str:
    """The key's privilege and limits."""
    limits = key.limits.model_dump(exclude_none=True)
    said = [f"{words}: {limits[name]}" for name, words in _LIMITS.items() if name in limits]
    return ", ".join([*(["high priority"] if key.high_priority else []), *said])


@router.get("/keys/{key_id}/revoke")
@requires(ADMIN, EVERYBODYS)
async def confirm_revoke(request: Request, key_id: key_routes.KeyId, state: StateDep, caller: CallerDep) -> Response:
    """Ask for confirmation, since a revoked key can't be restored."""
    key = next((api_key for api_key in await state.keys.list() if api_key.id == key_id), None)
    if key is None:
        raise UnknownKey(f'there is no key "{key_id[:64]}"')
    return page(request, caller, "revoke.html", {"key": key})


@router.post("/keys/{key_id}/revoke")
@requires(ADMIN, EVERYBODYS)
async def revoke_key(key_id: key_routes.KeyId, state: StateDep, caller: CallerDep) -> Response:
    """Refuse all further requests with the key."""
    await key_routes.revoke(key_id, state, caller)
    return see_other("/keys")
