"""The fleet: devices to cordon, workers. For admins: API keys."""

from urllib.parse import quote

from fastapi import APIRouter, Request, Response

from dyno.errors import InvalidKey
from dyno.models.api_key import NewKey
from service.auth import ADMIN, EVERYBODYS, OWN, READ, CallerDep, requires
from service.dashboard.forms import read_form
from service.dashboard.rendering import PageRoute, page, see_other
from service.dependencies import StateDep
from service.routes import fleet as fleet_routes
from service.routes import keys as key_routes
from service.validation import validate_model

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/fleet")
@requires(READ, OWN)
async def show(request: Request, state: StateDep, caller: CallerDep) -> Response:
    """All live devices and workers, and cordoned devices that are away."""
    context = {
        "devices": await fleet_routes.devices(state),
        "workers": await fleet_routes.workers(state),
        "may_cordon": ADMIN in caller.scope.implied,
        "quote": quote,
    }
    return page(request, caller, "fleet.html", context)


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
    return page(request, caller, "keys.html", {"keys": await state.keys.list(), "created": None, "refused": None})


@router.post("/keys")
@requires(ADMIN, EVERYBODYS)
async def create_key(request: Request, state: StateDep, caller: CallerDep) -> Response:
    """Create a key, and show its secret this once."""
    given = await read_form(request, state.settings)
    created = refused = None
    try:
        asked = validate_model(NewKey, given, [], InvalidKey)
        created = await key_routes.create(asked, state, caller, Response())
    except InvalidKey as invalid:
        refused = "; ".join(f"{error.pointer.strip('/')}: {error.detail}" for error in invalid.errors)
    context = {"keys": await state.keys.list(), "created": created, "refused": refused}
    return page(request, caller, "keys.html", context, 422 if refused else 201)


@router.post("/keys/{key_id}/revoke")
@requires(ADMIN, EVERYBODYS)
async def revoke_key(key_id: key_routes.KeyId, state: StateDep, caller: CallerDep) -> Response:
    """Refuse all further requests with the key."""
    await key_routes.revoke(key_id, state, caller)
    return see_other("/keys")
