"""Many open start pages that load again at once cost a few pages, and each of them is newer than its event."""

import time
from concurrent.futures import ThreadPoolExecutor
from math import ceil

import pytest
import redis

from dyno.settings import Settings
from dyno.store.embedded import EmbeddedServer
from service.app import create_app
from service.sharing import SHARED_S, SharedPages

DASHBOARDS = 60
AGAIN = {"Accept": "text/html", "X-Dyno-Refresh": "1"}


def test_open_start_pages_share_one_that_is_made_for_all(serve):
    with (
        EmbeddedServer() as server,
        redis.Redis.from_url(server.url, decode_responses=True) as client,
        serve(create_app(Settings(redis_url=server.url))) as http,
        ThreadPoolExecutor(10) as pool,
    ):

        def cost(headers):
            before, began_s = scripts(client), time.monotonic()
            answers = list(pool.map(lambda _: http.get("/", headers=headers).status_code, range(DASHBOARDS)))
            assert answers == DASHBOARDS * [200]
            return scripts(client) - before, time.monotonic() - began_s

        (fresh, _), (shared, took_s) = cost({"Accept": "text/html"}), cost(AGAIN)
        each = fresh // DASHBOARDS  # maintenance may add a script
        assert each >= 1
        assert each <= shared <= each * (2 + ceil(took_s / SHARED_S)) < fresh


def scripts(client):
    """How many scripts ran; each list of jobs is one."""
    found = client.info("commandstats")
    return sum(found.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "evalsha_ro", "fcall"))


@pytest.mark.anyio
async def test_callers_share_no_page_and_a_later_request_gets_a_new_one():
    now_s, made = [0.0], list[str]()

    async def page(of):
        made.append(of)
        return f"{of} {len(made)}".encode()

    pages = SharedPages(lambda: now_s[0])
    assert await pages.latest("home", "me", lambda: page("me")) == b"me 1"
    assert await pages.latest("home", "you", lambda: page("you")) == b"you 2"
    assert await pages.latest("home", "me", lambda: page("me")) == b"me 1"
    now_s[0] = SHARED_S
    assert await pages.latest("home", "me", lambda: page("me")) == b"me 3"
