"""TimedStream by itself: its end, its errors and its background task."""

from contextlib import asynccontextmanager

import httpx
import pytest
from starlette.background import BackgroundTask

from service.streaming import TimedStream

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def asking(app):
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        yield http


async def pieces(error=None):
    yield "first"
    if error is not None:
        raise error
    yield "last"


async def test_a_stream_ends_with_its_last_piece_and_runs_its_background_task():
    done: list[str] = []
    async with asking(TimedStream(pieces(), background=BackgroundTask(done.append, "afterwards"))) as http:
        answer = await http.get("/")
    assert (answer.text, done) == ("firstlast", ["afterwards"])


async def test_an_error_in_a_stream_reaches_the_server():
    async with asking(TimedStream(pieces(KeyError("a fault of ours")))) as http:
        with pytest.raises(KeyError, match="a fault of ours"):
            await http.get("/")
