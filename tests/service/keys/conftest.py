"""Fixtures: a service with keys of every scope, and clients that send them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import redis
from fastapi import FastAPI
from pydantic import SecretStr

from dyno.models.api_key import Limits, NewKey, Scope
from dyno.models.device import Device
from dyno.settings import Settings
from dyno.store.api_keys import ApiKeys
from dyno.store.redis import Keys, async_client
from service.app import create_app
from tests.service.keys.belongings import Belongings, make


@dataclass(frozen=True)
class Caller:
    """`http` sends the key's secret; `id` is the key's id."""

    id: str
    secret: str
    http: httpx.Client


def make_key(settings: Settings, scope: Scope = Scope.SUBMIT, **limits: int) -> tuple[str, str]:
    """Create a key as `dyno keys create` does; returns id and secret."""

    async def made() -> tuple[str, str]:
        async with async_client(settings) as client:
            asked = NewKey(name="test", scope=scope, limits=Limits(**limits))
            key, secret = await ApiKeys(client, settings).create(asked)
            return key.id, secret

    return asyncio.run(made())


@pytest.fixture(scope="module")
def settings(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings with webhooks; deliveries to this host are refused."""
    changes = {
        "webhook_secret": SecretStr(f"whsec_{base64.b64encode(bytes(32)).decode()}"),
        "webhook_allowed_hosts": ("127.0.0.1",),
        "webhook_every_s": 0.02,
        "artifact_dir": tmp_path_factory.mktemp("artifacts"),
    }
    return settings.model_copy(update=changes)


@pytest.fixture(scope="module")
def service(
    settings: Settings, serve: Callable[[FastAPI], AbstractContextManager[httpx.Client]]
) -> Iterator[httpx.Client]:
    """A client without a key; the first key exists before the service starts."""
    make_key(settings, Scope.READ)
    with serve(create_app(settings)) as http:
        yield http


@pytest.fixture(scope="module")
def caller(service: httpx.Client, settings: Settings) -> Iterator[Callable[..., Caller]]:
    """Create a key and a client that sends it."""
    with ExitStack() as stack:

        def one(scope: Scope = Scope.SUBMIT, **limits: int) -> Caller:
            key_id, secret = make_key(settings, scope, **limits)
            headers = {"Authorization": f"Bearer {secret}"}
            http = httpx.Client(base_url=service.base_url, headers=headers, timeout=30)
            return Caller(key_id, secret, stack.enter_context(http))

        yield one


@pytest.fixture(scope="module")
def owner(caller: Callable[..., Caller]) -> Caller:
    return caller()


@pytest.fixture(scope="module")
def http(owner: Caller) -> httpx.Client:
    """Jobs of the fixtures `submitted` and `finished` belong to the owner."""
    return owner.http


@pytest.fixture
def job_id(finished: Callable[..., str]) -> str:
    """A job of the owner, with a result."""
    return finished()


@pytest.fixture(scope="module")
def everyone(caller: Callable[..., Caller]) -> Mapping[Scope, Caller]:
    """A separate caller for each scope."""
    return {scope: caller(scope) for scope in Scope}


@pytest.fixture
def belongings(
    finished: Callable[..., str],
    caller: Callable[..., Caller],
    everyone: Mapping[Scope, Caller],
    owner: Caller,
    offered: Device,
    client: redis.Redis,
    settings: Settings,
) -> Iterator[Belongings]:
    """The owner's data."""
    everybodys = {"devices": offered.id, "keys": caller(Scope.READ).id, "workloads": "matmul", "docs": "page.js"}
    everybodys |= {"fleet": offered.id, "static": "dashboard.css"}
    yield make(owner.http, (owner.id, owner.secret[:13]), everybodys, finished, client, settings)
    client.delete(Keys(settings.namespace).cordoned)
    http = everyone[Scope.ADMIN].http
    for job in http.get("/v1/jobs", params={"status": "queued"}).json()["data"]:
        http.post(f"{job['urls']['self']}/cancel").raise_for_status()


def problem(answer: httpx.Response) -> tuple[int, Any]:
    return answer.status_code, answer.json().get("code")
