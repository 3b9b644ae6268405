"""Without keys the API serves clients on its own host, but no foreign web pages or proxied requests."""

import pytest
from fastapi import Request

from dyno.settings import Settings
from service.anonymous_access import check_anonymous
from service.app import create_app
from service.problems import HostNotAllowed
from tests.service.keys.conftest import make_key, problem

FRIEND = "https://lab.example.org"
CORDON, UNCORDON = (f"/v1/devices/cpu:0-1@here/{what}" for what in ("cordon", "uncordon"))


@pytest.fixture(scope="module")
def http(settings, serve):
    known = {"cors_origins": (FRIEND,), "allowed_hosts": ("dyno.lan",)}
    with serve(create_app(settings.model_copy(update=known))) as http:
        yield http


@pytest.fixture
def client(http, offered):
    yield http
    http.post(UNCORDON).raise_for_status()


LOOPBACK = ["127.0.0.1", "127.0.0.1:8000", "127.3.2.1", "[::1]:8000"]
NAMES = ["localhost", "LocalHost:80", "localhost.", "a.localhost", "dyno.lan", "dyno.lan:8000"]
FOREIGN = ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "evil-localhost", "192.0.2.7:8000"]
NO_NAMES = ["127.0.0.1:8000:1", "127.0.0.1@evil.example", "user@127.0.0.1", "[::2]", "0x7f.1", ""]


@pytest.mark.parametrize("name", [*LOOPBACK, *NAMES])
def test_loopback_names_and_names_from_the_settings_are_served(http, name):
    assert http.get("/v1/jobs", headers={"Host": name}).status_code == 200


def test_the_bound_host_name_is_served():
    request = Request({"type": "http", "method": "GET", "headers": [(b"host", b"bench:8000")]})
    check_anonymous(request, Settings(host="bench"))
    with pytest.raises(HostNotAllowed):
        check_anonymous(request, Settings())


@pytest.mark.parametrize("name", [*FOREIGN, *NO_NAMES])
def test_foreign_host_names_are_refused(http, name):
    assert problem(http.get("/v1/jobs", headers={"Host": name})) == (421, "host-not-allowed")


@pytest.mark.parametrize("name", ["Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Proto", "X-Real-IP"])
def test_requests_through_a_proxy_need_a_key(http, name):
    answer = http.get("/v1/jobs", headers={name: "said by the proxy"})
    assert problem(answer) == (403, "proxy-not-allowed")
    assert "dyno keys create" in answer.json()["detail"]


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1:1"}]
    + [{"Sec-Fetch-Site": site} for site in ("cross-site", "same-site")],
    ids=str,
)
def test_pages_of_other_origins_change_nothing(client, headers):
    assert problem(client.post(CORDON, headers=headers)) == (403, "origin-not-allowed")
    assert not client.get("/v1/devices").json()["data"][0]["cordoned"]


def test_pages_of_its_own_and_configured_origins_can_post(client):
    own = f"http://{client.base_url.host}:{client.base_url.port}"
    for headers in ({"Origin": own}, {"Origin": FRIEND, "Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "none"}):
        assert client.post(CORDON, headers=headers).status_code == 200
    assert (
        client.get("/v1/jobs", headers={"Origin": "https://evil.example"}).status_code == 200
    )  # the page can't read the response


STRANGE = {"Host": "evil.example", "Via": "1.1 proxy", "Origin": "https://evil.example"}


def test_callers_with_a_key_and_liveness_probes_are_not_restricted(redis_url, namespace, serve):
    settings = Settings(redis_url=redis_url, namespace=f"{namespace}-key")
    _, secret = make_key(settings)
    with serve(create_app(settings)) as http:
        assert http.get("/v1/jobs", headers=STRANGE | {"Authorization": f"Bearer {secret}"}).status_code == 200
        assert http.get("/livez", headers=STRANGE).status_code == 200


@pytest.mark.parametrize(("allowed_hosts", "status"), [((), 200), (("api",), 421)])
def test_an_unauthenticated_api_serves_every_host_name_unless_limited(settings, serve, allowed_hosts, status):
    everybody = {"host": "0.0.0.0", "allow_unauthenticated": True, "allowed_hosts": allowed_hosts}
    with serve(create_app(settings.model_copy(update=everybody))) as http:
        assert http.get("/v1/jobs", headers=STRANGE).status_code == status
        assert http.get("/v1/jobs", headers={"Host": "api:8000"}).status_code == 200
