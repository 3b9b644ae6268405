"""API keys: the caller's own key, and for admins all keys."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response

from dyno.errors import InvalidKey
from dyno.logging import audit
from dyno.models.api_key import CreatedKey, KeyList, Me, NewKey
from service import auth, dependencies, problems
from service.state import State

router = APIRouter(prefix="/v1", tags=["keys"])


def _body() -> dict[str, Any]:
    schema = NewKey.model_json_schema(ref_template="#/components/schemas/{model}")
    del schema["$defs"]  # a response contains limits, too, so the document already has these definitions
    return schema


KeyId = Annotated[str, Path(description="`key_` and 16 hexadecimal digits")]


@router.get("/me", operation_id="getMe", summary="Read your key")
@auth.requires(auth.READ, auth.OWN)
async def me(caller: auth.CallerDep) -> Me:
    """Read your key, its scopes and its limits."""
    return Me(key=caller.key, scopes=caller.scope.implied)


@router.post(
    "/keys",
    operation_id="createKey",
    summary="Create a key",
    status_code=201,
    openapi_extra=dependencies.takes(_body()),
    responses=problems.documented(*problems.OF_BODY, "invalid-key", "store-unfit"),
)
@auth.requires(auth.ADMIN, auth.EVERYBODYS)
async def create(
    new_key: Annotated[NewKey, Depends(dependencies.read_model(NewKey, InvalidKey))],
    state: dependencies.StateDep,
    caller: auth.CallerDep,
    response: Response,
) -> CreatedKey:
    """Create a key. Only this response has its secret: Dyno stores a hash."""
    response.headers["Cache-Control"] = "no-store"
    return await create_key(state, new_key, caller)


async def create_key(state: State, new_key: NewKey, caller: auth.Caller) -> CreatedKey:
    """Create a key and audit it. Raises StoreUnfit."""
    await state.readiness.require_fit()
    key, secret = await state.keys.create(new_key)
    audit("key-created", caller.name, key=key.id, name=key.name, scope=key.scope)
    return CreatedKey(**dict(key), secret=secret)


@router.get("/keys", operation_id="listKeys", summary="List keys")
@auth.requires(auth.ADMIN, auth.EVERYBODYS)
async def browse(state: dependencies.StateDep) -> KeyList:
    """List all keys, newest first."""
    return KeyList(data=await state.keys.list())


@router.delete(
    "/keys/{key_id}",
    operation_id="revokeKey",
    summary="Revoke a key",
    status_code=204,
    responses=problems.documented("key-not-found"),
)
@auth.requires(auth.ADMIN, auth.EVERYBODYS)
async def revoke(key_id: KeyId, state: dependencies.StateDep, caller: auth.CallerDep) -> None:
    """Revoke a key: requests with it are refused from now on. Repeating the request changes nothing.

    The key's jobs continue, and only admins can see them. Requests still need a key, even if no key is left.
    """
    if await state.keys.revoke(key_id):
        audit("key-revoked", caller.name, key=key_id)
