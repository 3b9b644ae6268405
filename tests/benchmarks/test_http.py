"""The frequent requests: the page of figures made by hand, wrong responses, and a moment with all services."""

import asyncio

import pytest
import uvloop

from benchmarks import http
from benchmarks.http import ARMS, OPERATIONS, TWO, Cell, Measured
from benchmarks.loadgen import send

RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def rows(page):
    """The cells of all tables, without heads."""
    lines = [line.strip("| ").split(" | ") for line in page if line.startswith("| ")]
    return [cells for cells in lines if cells[0] in OPERATIONS.values()]


def test_a_ratio_is_the_median_of_the_rounds_and_not_of_the_services():
    found = Measured(rounds=3, seconds=2.0, arms=tuple(arm for arm in ARMS if arm != TWO))
    for arm, operation in found.all_cells():
        rates = (100, 200, 300) if arm == "dyno" else (50, 400, 100)
        found.cells.setdefault(operation, {})[arm] = [Cell(rate, p99_ms=rate / 10) for rate in rates]
    page = http.lines(found)
    assert f"`{TWO}` needs 4 cores." in page
    submit, *_, last = rows(page)
    assert submit[:3] == ["submit a job", "200 (100 to 300); p99 20.0 ms", "100 (50 to 400); p99 10.0 ms"]
    assert last == ["list 20 jobs", "–", "2.00 (0.50 to 3.00)"]


@pytest.mark.parametrize(
    ("response", "said"),
    [
        (RESPONSE.replace(b"200 OK", b"503 Service Unavailable"), "wrong response: HTTP/1.1 503"),
        (RESPONSE.replace(b"{}", b"[]"), r"\[\]"),
        (RESPONSE + b"{}", "wrong response"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "wrong response"),
        (RESPONSE[:-1], "closed a connection"),
    ],
)
def test_a_wrong_response_ends_the_benchmark(response, said):
    with pytest.raises(RuntimeError, match=said):
        uvloop.run(exchange(response))


def test_a_response_may_come_in_pieces():
    assert uvloop.run(exchange(RESPONSE[:30], RESPONSE[30:])) == 1


async def exchange(*pieces):
    """How many responses the client counts, of a service that sends these pieces and closes the connection."""

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0.01)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        load = await send(port, lambda: b"GET / HTTP/1.1\r\n\r\n", lambda *response: response == (200, b"{}"))
        return len(load.took_s)


def test_every_service_answers_each_request():
    found = http.measure(rounds=1, seconds=0.1, arms=ARMS)
    page = http.lines(found)
    assert [len(cells) for cells in rows(page)] == [6] * 4 + [3] * 4
    assert page[0].startswith("**These figures are of a short run")
    assert all(cell.requests_per_s > 0 for arms in found.cells.values() for cells in arms.values() for cell in cells)
    assert found.result_bytes > 10_000
