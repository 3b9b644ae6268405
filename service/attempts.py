"""What a worker may do without a key: the token of its attempt says for which job."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import Request

from dyno.errors import UnknownJob
from dyno.models.spec import InterleavedSpec, Spec
from dyno.store.artifacts import check_token
from dyno.store.redis import JOB_ID
from service.errors import NotAuthorized, RepeatedHeader, as_to_a_stranger
from service.state import State

JOB_HEADER = "dyno-job"  # the job that the token holds, where the request is about another one's file


def bearer(request: Request) -> str | None:
    """What comes with the scheme `Bearer`; null for none. Raises RepeatedHeader (RFC 6750, section 3.1)."""
    scheme, _, token = (_only(request, "authorization") or "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


async def check_start(request: Request, state: State) -> None:
    """That the attempt runs a job that starts from the file asked for.

    Raises NotAuthorized, RepeatedHeader, StaleToken, UnknownJob.
    """
    own, token = _only(request, JOB_HEADER) or "", bearer(request)
    if token is None or JOB_ID.fullmatch(own) is None:
        raise NotAuthorized(f"{JOB_HEADER} names the job whose attempt's token is sent with it")
    with as_to_a_stranger():
        await check_token(state.client, state.settings, own, token)
    asked = {"job": request.path_params["job_id"], "name": request.path_params["name"]}
    if asked not in _starts((await state.jobs.get(own)).spec):
        raise UnknownJob(f"{own} starts from no such file")


def _only(request: Request, name: str) -> str | None:
    given = request.headers.getlist(name)
    if len(given) > 1:
        raise RepeatedHeader(f"the header {name} is given more than once, and has one value")
    return given[0] if given else None


def _starts(spec: Spec) -> Iterator[object]:
    yield spec.params.get("weights")
    if isinstance(spec, InterleavedSpec):
        yield spec.against.params.get("weights")
