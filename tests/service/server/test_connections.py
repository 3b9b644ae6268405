from __future__ import annotations

from service.server.connections import ConnectionLimit, WaitsFor


class Someone:
    def __init__(self) -> None:
        self.sent_away_for: str | None = None
        self.is_reading = False
        self.held_bytes = 0

    def leave(self, why: str) -> None:
        self.sent_away_for = why

    def takes(self) -> bool:
        return self.is_reading


def inside(limit: ConnectionLimit, *waiting_for: WaitsFor | None) -> list[Someone]:
    connections = [Someone() for _ in waiting_for]
    for connection, what in zip(connections, waiting_for, strict=True):
        assert limit.enter(connection)
        limit.waits(connection, what)
    return connections


def away(connections: list[Someone]) -> list[int]:
    return [number for number, connection in enumerate(connections) if connection.sent_away_for]


def test_connections_without_requests_close_first_then_the_longest_idle() -> None:
    limit = ConnectionLimit(5, most_sending=5, most_held_bytes=100)
    connections = inside(limit, WaitsFor.NEXT, None, WaitsFor.FIRST, WaitsFor.NEXT, WaitsFor.FIRST)
    limit.waits(connections[0], None)  # sends another request, and waits since then
    limit.waits(connections[0], WaitsFor.NEXT)
    order = []
    for _ in range(4):
        newcomer = Someone()
        assert limit.enter(newcomer)
        limit.waits(newcomer, None)
        order.append(away(connections))
    assert order == [[2], [2, 4], [2, 3, 4], [0, 2, 3, 4]]
    assert not limit.enter(Someone())
    limit.out(connections[1])
    assert limit.enter(Someone())


def test_connections_with_an_incomplete_request_are_not_replaced() -> None:
    limit = ConnectionLimit(2, most_sending=2, most_held_bytes=100)
    connections = inside(limit, WaitsFor.BODY, WaitsFor.BODY)
    assert not limit.enter(Someone())
    assert away(connections) == []


def test_beyond_the_limit_on_bodies_the_longest_silent_one_is_closed() -> None:
    limit = ConnectionLimit(10, most_sending=2, most_held_bytes=100)
    connections = inside(limit, WaitsFor.BODY, WaitsFor.BODY)
    limit.waits(connections[0], WaitsFor.BODY)  # another piece arrived
    connections += inside(limit, WaitsFor.BODY)
    assert away(connections) == [1]
    assert connections[1].sent_away_for == "made_room"


def test_refused_and_closed_connections_are_not_counted() -> None:
    limit = ConnectionLimit(1, most_sending=1, most_held_bytes=100)
    inside(limit, None)
    stranger = Someone()
    assert not limit.enter(stranger)
    limit.waits(stranger, WaitsFor.BODY)
    limit.out(stranger)
    assert not limit.enter(Someone())


def test_stuck_readers_close_before_idle_connections_and_active_readers_stay() -> None:
    limit = ConnectionLimit(5, most_sending=5, most_held_bytes=100)
    connections = inside(limit, WaitsFor.NEXT, WaitsFor.READER, WaitsFor.READER, WaitsFor.READER, WaitsFor.FIRST)
    connections[1].is_reading = True
    order = []
    for _ in range(4):
        newcomer = Someone()
        assert limit.enter(newcomer)
        limit.waits(newcomer, None)
        order.append(away(connections))
    assert order == [[4], [2, 4], [2, 3, 4], [0, 2, 3, 4]]
    assert not limit.enter(Someone())
    connections[1].is_reading = False
    assert limit.enter(Someone())


def test_unread_responses_are_limited_and_the_longest_stuck_reader_is_closed() -> None:
    limit = ConnectionLimit(10, most_sending=5, most_held_bytes=100)
    connections = inside(limit, *[None] * 5)
    for connection in connections[:4]:
        connection.held_bytes = 25
        limit.waits(connection, WaitsFor.READER)
    assert away(connections) == []
    connections[0].is_reading = True
    connections[1].held_bytes = 5  # its client has read the rest
    connections[4].held_bytes = 20
    limit.waits(connections[4], WaitsFor.READER)
    assert away(connections) == []
    limit.waits(connections[1], None)
    connections[1].held_bytes = 40
    limit.waits(connections[1], WaitsFor.READER)
    assert away(connections) == [2, 3]
    assert connections[2].sent_away_for == "stuck"
    connections[0].held_bytes = 200  # too much, even if its client reads
    limit.waits(connections[0], None)
    limit.waits(connections[0], WaitsFor.READER)
    assert 0 in away(connections)
