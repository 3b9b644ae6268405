import time
from datetime import timedelta

import pytest

from dyno.errors import KeyExpired, LimitReached, UnknownKey
from dyno.models.api_key import Limits, NewKey, Scope
from dyno.store.api_keys import ApiKeys
from dyno.store.redis import Keys
from tests.store.contents import contents

pytestmark = pytest.mark.anyio


@pytest.fixture
def api_keys(async_redis, settings):
    return ApiKeys(async_redis, settings)


@pytest.fixture
def asked():
    return lambda **limits: NewKey(name="ci", scope=Scope.SUBMIT, limits=Limits(**limits))


async def test_a_key_is_found_by_its_secret_and_only_a_hash_is_stored(api_keys, asked, client, settings):
    key, secret = await api_keys.create(asked(queued_jobs=5))
    found = await api_keys.admit(secret)
    assert found is not None
    assert found.model_copy(update={"last_used_at": None}) == key
    assert (key.name, key.scope, key.limits) == ("ci", "submit", Limits(queued_jobs=5))
    assert secret.startswith(key.prefix)
    kept = contents(client, settings.namespace)
    assert Keys(settings.namespace).api_key(key.id) in kept
    assert not [name for name, text in kept.items() if secret.removeprefix(key.prefix)[:8] in name + text]
    assert secret not in str(key)


@pytest.mark.parametrize(
    "secret", ["", "dyno_", "dyno_" + "0" * 64, "Dyno_" + "0" * 64, "key_0123456789abcdef", "\x00"]
)
async def test_an_unknown_secret_finds_no_key(api_keys, asked, secret):
    await api_keys.create(asked())
    assert await api_keys.admit(secret) is None


async def test_a_partial_hash_match_is_refused(api_keys, asked, client, keys):
    key, secret = await api_keys.create(asked())
    digest = str(client.hget(keys.api_key(key.id), "digest"))
    client.hset(keys.api_key(key.id), "digest", digest[:-1] + ("0" if digest[-1] != "0" else "1"))
    assert await api_keys.admit(secret) is None


async def test_a_revoked_key_is_refused_but_still_listed(api_keys, asked):
    (first, secret), (second, _) = await api_keys.create(asked()), await api_keys.create(asked())
    assert await api_keys.revoke(first.id)
    assert await api_keys.admit(secret) is None
    assert not await api_keys.revoke(first.id)
    listed = {key.id: key.revoked_at for key in await api_keys.list()}
    assert listed.keys() == {first.id, second.id}
    assert listed[first.id] is not None
    assert listed[second.id] is None
    with pytest.raises(UnknownKey):
        await api_keys.revoke("key_0000000000000000")


PAST = "1700000000.000000"  # 2023-11-14T22:13:20Z


async def test_an_expired_key_is_refused_and_still_listed(api_keys, client, keys):
    key, secret = await api_keys.create(NewKey(name="guest", scope="read", expires_in_s=60))
    assert key.expires_at == key.created_at + timedelta(seconds=60)
    found = await api_keys.admit(secret)
    assert found is not None
    assert found.expires_at == key.expires_at
    assert await api_keys.is_valid(key.id)
    client.hset(keys.api_key(key.id), "expires_at", PAST)
    with pytest.raises(KeyExpired, match="2023-11-14T22:13:20Z"):
        await api_keys.admit(secret)
    assert api_keys.last_admitted(secret) is None
    assert not await api_keys.is_valid(key.id)
    [listed] = await api_keys.list()
    assert (listed.id, listed.revoked_at) == (key.id, None)
    assert listed.expires_at is not None
    assert await api_keys.any(), "a service whose only key has expired stays closed"
    assert not await api_keys.open_again()
    assert await api_keys.revoke(key.id)


async def test_keys_are_revoked_and_the_service_opened_in_one_step_each(api_keys, asked, async_redis, monkeypatch):
    key, _ = await api_keys.create(asked())
    send, said = async_redis.send, list[str]()

    def heard(*words):
        said.append(str(words[0]))
        return send(*words)

    await api_keys.revoke(key.id)  # now the server knows the script
    await api_keys.open_again()
    key, _ = await api_keys.create(asked())
    monkeypatch.setattr(async_redis, "send", heard)
    for step in (api_keys.open_again(), api_keys.revoke(key.id), api_keys.open_again()):
        await step
        assert said == ["EVALSHA"]
        said.clear()


async def test_only_open_again_allows_requests_without_a_key(api_keys, asked):
    assert not await api_keys.any()
    key, _ = await api_keys.create(asked())
    assert await api_keys.any()
    assert not await api_keys.open_again()
    await api_keys.revoke(key.id)
    assert await api_keys.any()
    assert await api_keys.open_again()
    assert not await api_keys.any()
    assert await api_keys.list() == []


async def test_a_bucket_holds_the_requests_of_a_second_and_fills_again(api_keys, asked, client, keys):
    key, secret = await api_keys.create(asked(requests_per_s=3))

    def fill_later():
        """Nothing comes in for 4 s."""
        client.hset(keys.api_key(key.id), "filled_ms", int((time.time() + 4) * 1000))

    await api_keys.admit(secret)
    assert float(client.hget(keys.api_key(key.id), "tokens") or "") == 2
    fill_later()
    for _ in range(2):
        await api_keys.admit(secret)
        fill_later()
    with pytest.raises(LimitReached) as reached:
        await api_keys.admit(secret)
    assert (reached.value.policy, reached.value.quota, reached.value.window_s) == ("requests", 3, 1)
    assert reached.value.retry_after_s == 1
    client.hset(keys.api_key(key.id), "filled_ms", 1)
    await api_keys.admit(secret)
    assert float(client.hget(keys.api_key(key.id), "tokens") or "") == 2


async def test_use_is_recorded_to_the_minute_and_a_deleted_key_is_not_recreated(api_keys, asked, client, keys):
    key, secret = await api_keys.create(asked())
    assert key.last_used_at is None
    await api_keys.admit(secret)
    first = await api_keys.admit(secret)
    assert first is not None
    assert first.last_used_at is not None
    await api_keys.admit(secret)
    assert await api_keys.admit(secret) == first
    client.hset(keys.api_key(key.id), "last_used_at", "1.0")
    await api_keys.admit(secret)
    assert client.hget(keys.api_key(key.id), "last_used_at") != "1.0"
    await api_keys.revoke(key.id)
    await api_keys.open_again()
    assert await api_keys.admit(secret) is None
    assert not client.exists(keys.api_key(key.id))
