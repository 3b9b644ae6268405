"""Fixtures: a service with keys of every scope, and clients that send them."""

import asyncio
import base64
from contextlib import ExitStack
from dataclasses import dataclass

import httpx
import pytest
from pydantic import SecretStr

from dyno.models.api_key import Limits, NewKey, Scope
from dyno.store.api_keys import ApiKeys
from dyno.store.redis import Keys, async_client
from service.app import create_app
from tests.service.keys.belongings import make


@dataclass(frozen=True)
class Caller:
    """`http` sends the key's secret; `id` is the key's id."""

    id: str
    secret: str
    http: httpx.Client


def make_key(settings, scope=Scope.SUBMIT, **limits):
    """Create a key as `dyno keys create` does; returns id and secret."""

    async def made():
        async with async_client(settings) as client:
            asked = NewKey(name="test", scope=scope, limits=Limits(**limits))
            key, secret = await ApiKeys(client, settings).create(asked)
            return key.id, secret

    return asyncio.run(made())


@pytest.fixture(scope="module")
def settings(settings, tmp_path_factory):
    """Settings with webhooks; deliveries to this host are refused."""
    changes = {
        "webhook_secret": SecretStr(f"whsec_{base64.b64encode(bytes(32)).decode()}"),
        "webhook_allowed_hosts": ("127.0.0.1",),
        "webhook_every_s": 0.02,
        "artifact_dir": tmp_path_factory.mktemp("artifacts"),
    }
    return settings.model_copy(update=changes)


@pytest.fixture(scope="module")
def service(settings, serve):
    """A client without a key; the first key exists before the service starts."""
    make_key(settings, Scope.READ)
    with serve(create_app(settings)) as http:
        yield http


@pytest.fixture(scope="module")
def caller(service, settings):
    """Create a key and a client that sends it."""
    with ExitStack() as stack:

        def one(scope=Scope.SUBMIT, **limits):
            key_id, secret = make_key(settings, scope, **limits)
            headers = {"Authorization": f"Bearer {secret}"}
            http = httpx.Client(base_url=service.base_url, headers=headers, timeout=30)
            return Caller(key_id, secret, stack.enter_context(http))

        yield one


@pytest.fixture(scope="module")
def owner(caller):
    return caller()


@pytest.fixture(scope="module")
def http(owner):
    """Jobs of the fixtures `submitted` and `finished` belong to the owner."""
    return owner.http


@pytest.fixture
def job_id(finished):
    """A job of the owner, with a result."""
    return finished()


@pytest.fixture(scope="module")
def everyone(caller):
    """A separate caller for each scope."""
    return {scope: caller(scope) for scope in Scope}


@pytest.fixture
def belongings(finished, caller, everyone, owner, offered, client, settings):
    """The owner's data."""
    everybodys = {"devices": offered.id, "keys": caller(Scope.READ).id, "workloads": "matmul", "docs": "page.js"}
    everybodys |= {"fleet": offered.id, "static": "dashboard.css"}
    yield make(owner.http, (owner.id, owner.secret[:13]), everybodys, finished, client, settings)
    client.delete(Keys(settings.namespace).cordoned)
    http = everyone[Scope.ADMIN].http
    for job in http.get("/v1/jobs", params={"status": "queued"}).json()["data"]:
        http.post(f"{job['urls']['self']}/cancel").raise_for_status()


def problem(answer):
    return answer.status_code, answer.json().get("code")
