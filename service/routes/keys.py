"""API keys: what the caller's own may do, and for admins all of them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response

from dyno.errors import InvalidKey
from dyno.logging import audit
from dyno.models.api_key import CreatedKey, KeyList, Me, NewKey
from service import validation
from service.auth import CallerDep
from service.dependencies import StateDep
from service.problems import documented

router = APIRouter(prefix="/v1", tags=["keys"])


def _body() -> dict[str, Any]:
    schema = NewKey.model_json_schema(ref_template="#/components/schemas/{model}")
    del schema["$defs"]  # limits are in the answer, too, so the document has them
    return schema


async def _asked(request: Request, state: StateDep) -> NewKey:
    document, errors = validation.parse_json(await validation.read_body(request, state.settings))
    return validation.validate_model(NewKey, document, errors, InvalidKey)


KeyId = Annotated[str, Path(description="`key_` and 16 digits, as the list has it")]


@router.get("/me", responses=documented())
async def me(caller: CallerDep) -> Me:
    """The caller's key, its scopes and its limits."""
    return Me(key=caller.key, scopes=caller.scope.implied)


@router.post(
    "/keys",
    status_code=201,
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": _body()}}}},
    responses=documented(
        *("malformed-body", "body-timeout", "body-too-large", "unsupported-media-type", "invalid-key"),
        "store-unavailable",
    ),
)
async def create(
    asked: Annotated[NewKey, Depends(_asked)], state: StateDep, caller: CallerDep, response: Response
) -> CreatedKey:
    """Make a key. Its secret is in this answer and nowhere else: Dyno keeps its hash."""
    key, secret = await state.keys.create(asked)
    audit("key-created", caller.name, key=key.id, name=key.name, scope=key.scope)
    response.headers["Cache-Control"] = "no-store"
    return CreatedKey(**dict(key), secret=secret)


@router.get("/keys", responses=documented("store-unavailable"))
async def browse(state: StateDep) -> KeyList:
    """All keys, the newest first."""
    return KeyList(data=await state.keys.list())


@router.delete("/keys/{key_id}", status_code=204, responses=documented("key-not-found", "store-unavailable"))
async def revoke(key_id: KeyId, state: StateDep, caller: CallerDep) -> None:
    """Revoke a key: no further request gets through with it. Repeating it changes nothing.

    Its jobs go on; from now on only admins see them. Where no key is left, requests still need one.
    """
    if await state.keys.revoke(key_id):
        audit("key-revoked", caller.name, key=key_id)
