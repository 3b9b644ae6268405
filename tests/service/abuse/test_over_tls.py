"""Abuse over TLS: clients that omit its opening or closing handshake, or don't read."""

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


def test_a_connection_without_a_handshake_makes_room(run_tls: Run) -> None:
    with run_tls(files=(2 * MOST, 2 * MOST), head_timeout_s="600") as api, ExitStack() as stack:
        for _ in range(4 * MOST):
            stack.enter_context(socket.create_connection(("127.0.0.1", api.port)))
        assert all(served(api, stack) for _ in range(5))
        assert api.ended()["made_room"] >= 3 * MOST
        assert len(list(Path(f"/proc/{api.pid}/fd").iterdir())) < 2 * MOST


def test_a_client_that_does_not_close_tls_makes_room_and_is_closed(run_tls: Run) -> None:
    with run_tls(max_connections=str(MOST), head_timeout_s="600") as api, ExitStack() as stack:
        for _ in range(MOST):
            answered = api.call().get("/livez", "Connection: close")
            stack.enter_context(answered.socket)
            assert answered.answer().status_code == 200
        assert served(api, stack)
        eventually(lambda: api.connections() <= 2, within_s=20, what="nobody waits for them")


def test_a_response_is_complete_when_its_connection_closes(run_tls: Run) -> None:
    with run_tls() as api:
        whole = api.http.get(LARGE).content
        [answer] = api.call().get(LARGE, "Connection: close").answers()
        assert answer.content == whole


def test_clients_that_do_not_read_cost_little_memory_and_block_no_others(run_tls: Run) -> None:
    with run_tls(max_connections=str(MOST), write_timeout_s="600") as api, ExitStack() as stack:
        assert api.http.get(LARGE).status_code == 200
        before = peak_bytes(api.pid)
        forget_peak(api.pid)
        for _ in range(MOST):
            stack.enter_context(api.stuck(LARGE).socket)
        eventually(lambda: served(api, stack), within_s=30, what="a newcomer is served")
        assert peak_bytes(api.pid) - before < 30_000_000
