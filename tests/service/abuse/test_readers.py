"""Clients that don't read their responses, or read them slowly."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack

import pytest

from service.server.response_transport import FULL_BYTES
from tests.service.abuse.conftest import MOST, Api
from tests.waiting import eventually

LARGE = "/docs/swagger-ui-bundle.js"  # needs no key
SLOWLY_S = 0.4
Run = Callable[..., AbstractContextManager[Api]]


@pytest.fixture(scope="module")
def patient(run_api: Run) -> Iterator[Api]:
    """An API with long timeouts, few connections and little memory for responses."""
    given = {"head_timeout_s": "600", "write_timeout_s": "600", "max_unsent_bytes": str(6 * 2**20)}
    with run_api(max_connections=str(MOST), **given) as api:
        yield api


def served(api: Api, stack: ExitStack) -> bool:
    """Whether a new connection is served; it stays open."""
    newcomer = api.call().get("/livez")
    stack.enter_context(newcomer.socket)
    return newcomer.answer().status_code == 200


def test_clients_that_do_not_read_block_no_others(patient: Api) -> None:
    before = patient.ended()
    with ExitStack() as stack:
        for _ in range(MOST):
            stack.enter_context(patient.stuck(LARGE).socket)
        for _ in range(MOST // 4):
            eventually(lambda: served(patient, stack), within_s=30, what="a newcomer is served")
        ended = patient.ended() - before
        assert ended["made_room"] >= MOST // 4
        assert ended["stuck"] == 0  # a file that all clients read is in memory once


def test_unread_responses_have_a_total_memory_limit(run_api: Run) -> None:
    with run_api(write_timeout_s="600", max_unsent_bytes=str(2**20)) as api, ExitStack() as stack:
        for _ in range(2 * 2**20 // FULL_BYTES):
            stack.enter_context(api.stuck(LARGE).socket)
        eventually(lambda: api.ended()["stuck"] >= 2**20 // FULL_BYTES, within_s=30, what="half of them are let go")
        assert api.http.get("/v1/jobs").status_code == 200


def test_a_slow_but_steady_reader_is_not_cut_off(run_api: Run) -> None:
    """If the machine stalls the reader for SLOWLY_S, the test tries again."""
    with run_api(write_timeout_s=str(SLOWLY_S)) as api:
        assert any(lasts(api) for _ in range(5))


def lasts(api: Api) -> bool:
    """Whether a client can read slowly for much longer than the write timeout."""
    begun_s, before = time.monotonic(), api.ended()["stuck"]

    def is_over() -> bool:
        reader.some(4096)
        return time.monotonic() - begun_s > 5 * SLOWLY_S

    with (reader := api.stuck(LARGE)).socket:
        eventually(is_over)
        return api.ended()["stuck"] == before
