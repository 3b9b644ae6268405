"""The same over TLS, which has a beginning and an end of its own for callers to leave out."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from tests.service.abuse.conftest import MOST, Api
from tests.service.abuse.test_bodies import forget_peak, peak_bytes
from tests.service.abuse.test_readers import LARGE, served
from tests.waiting import eventually

Run = Callable[..., AbstractContextManager[Api]]


def test_who_never_begins_the_handshake_makes_room(run_tls: Run) -> None:
    with run_tls(files=(2 * MOST, 2 * MOST), head_timeout_s="600") as api, ExitStack() as stack:
        for _ in range(4 * MOST):
            stack.enter_context(socket.create_connection(("127.0.0.1", api.port)))
        assert all(served(api, stack) for _ in range(5))
        assert api.ended()["made_room"] >= 3 * MOST
        assert len(list(Path(f"/proc/{api.pid}/fd").iterdir())) < 2 * MOST


def test_who_does_not_end_tls_when_told_to_close_makes_room_and_is_closed(run_tls: Run) -> None:
    with run_tls(max_connections=str(MOST), head_timeout_s="600") as api, ExitStack() as stack:
        for _ in range(MOST):
            answered = api.call().get("/livez", "Connection: close")
            stack.enter_context(answered.socket)
            assert answered.answer().status_code == 200
        assert served(api, stack)
        eventually(lambda: api.connections() <= 2, within_s=20, what="nobody waits for them")


def test_an_answer_is_whole_though_its_connection_closes_behind_it(run_tls: Run) -> None:
    with run_tls() as api:
        whole = api.http.get(LARGE).content
        [answer] = api.call().get(LARGE, "Connection: close").answers()
        assert answer.content == whole


def test_callers_that_read_nothing_cost_little_memory_and_keep_no_places_from_others(run_tls: Run) -> None:
    with run_tls(max_connections=str(MOST), write_timeout_s="600") as api, ExitStack() as stack:
        assert api.http.get(LARGE).status_code == 200
        before = peak_bytes(api.pid)
        forget_peak(api.pid)
        for _ in range(MOST):
            stack.enter_context(api.stuck(LARGE).socket)
        eventually(lambda: served(api, stack), within_s=30, what="a newcomer is served")
        assert peak_bytes(api.pid) - before < 30_000_000
