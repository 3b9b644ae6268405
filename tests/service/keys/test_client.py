"""Keys through both clients."""

from datetime import timedelta

import pytest

from dyno.client import AsyncClient, Client, Refused
from dyno.models.api_key import Limits, Scope
from tests.asking import asked


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_key_is_made_used_listed_and_revoked(kind, service, caller):
    url, admin = str(service.base_url), caller(Scope.ADMIN).secret
    limits = Limits(queued_jobs=3)
    made = asked(kind, lambda client: client.create_key("ci", Scope.SUBMIT, limits, expires_in_s=60), url, admin)
    assert made.expires_at == made.created_at + timedelta(seconds=60)
    me = asked(kind, lambda client: client.me(), url, made.secret)
    assert (me.key.id, me.key.limits.queued_jobs, me.scopes) == (made.id, 3, ["read", "submit"])
    asked(kind, lambda client: client.revoke_key(made.id), url, admin)
    [listed] = [key for key in asked(kind, lambda client: client.keys(), url, admin) if key.id == made.id]
    assert listed.revoked_at is not None
    with pytest.raises(Refused) as raised:
        asked(kind, lambda client: client.me(), url, made.secret)
    assert raised.value.status == 401
    with pytest.raises(Refused) as raised:
        asked(kind, lambda client: client.create_key("", "nothing"), url, admin)
    assert {error["pointer"] for error in raised.value.problem["errors"]} == {"/name", "/scope"}
