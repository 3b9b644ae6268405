from __future__ import annotations

from service.server.crowd import Crowd, Waits


class Someone:
    def __init__(self) -> None:
        self.sent_away_for: str | None = None
        self.is_reading = False
        self.held_bytes = 0

    def leave(self, why: str) -> None:
        self.sent_away_for = why

    def takes(self) -> bool:
        return self.is_reading


def inside(crowd: Crowd, *waiting_for: Waits | None) -> list[Someone]:
    guests = [Someone() for _ in waiting_for]
    for guest, what in zip(guests, waiting_for, strict=True):
        assert crowd.enter(guest)
        crowd.waits(guest, what)
    return guests


def away(guests: list[Someone]) -> list[int]:
    return [number for number, guest in enumerate(guests) if guest.sent_away_for]


def test_those_who_never_asked_go_first_then_those_who_have_waited_longest() -> None:
    crowd = Crowd(5, most_sending=5, most_held_bytes=100)
    guests = inside(crowd, Waits.NEXT, None, Waits.FIRST, Waits.NEXT, Waits.FIRST)
    crowd.waits(guests[0], None)  # asks again, and waits for the next one since
    crowd.waits(guests[0], Waits.NEXT)
    order = []
    for _ in range(4):
        newcomer = Someone()
        assert crowd.enter(newcomer)
        crowd.waits(newcomer, None)
        order.append(away(guests))
    assert order == [[2], [2, 4], [2, 3, 4], [0, 2, 3, 4]]
    assert not crowd.enter(Someone())
    crowd.out(guests[1])
    assert crowd.enter(Someone())


def test_a_request_that_is_half_there_makes_no_room_for_a_newcomer() -> None:
    crowd = Crowd(2, most_sending=2, most_held_bytes=100)
    guests = inside(crowd, Waits.BODY, Waits.BODY)
    assert not crowd.enter(Someone())
    assert away(guests) == []


def test_of_too_many_bodies_that_are_half_there_the_one_that_was_silent_longest_goes() -> None:
    crowd = Crowd(10, most_sending=2, most_held_bytes=100)
    guests = inside(crowd, Waits.BODY, Waits.BODY)
    crowd.waits(guests[0], Waits.BODY)  # another piece of it came
    guests += inside(crowd, Waits.BODY)
    assert away(guests) == [1]
    assert guests[1].sent_away_for == "made_room"


def test_whoever_found_no_place_or_has_gone_counts_no_more() -> None:
    crowd = Crowd(1, most_sending=1, most_held_bytes=100)
    inside(crowd, None)
    stranger = Someone()
    assert not crowd.enter(stranger)
    crowd.waits(stranger, Waits.BODY)
    crowd.out(stranger)
    assert not crowd.enter(Someone())


def test_readers_that_take_nothing_go_before_those_who_were_answered_and_those_who_do_stay() -> None:
    crowd = Crowd(5, most_sending=5, most_held_bytes=100)
    guests = inside(crowd, Waits.NEXT, Waits.READER, Waits.READER, Waits.READER, Waits.FIRST)
    guests[1].is_reading = True
    order = []
    for _ in range(4):
        newcomer = Someone()
        assert crowd.enter(newcomer)
        crowd.waits(newcomer, None)
        order.append(away(guests))
    assert order == [[4], [2, 4], [2, 3, 4], [0, 2, 3, 4]]
    assert not crowd.enter(Someone())
    guests[1].is_reading = False
    assert crowd.enter(Someone())


def test_of_answers_that_nobody_takes_only_so_much_is_held_and_who_has_taken_nothing_for_longest_goes() -> None:
    crowd = Crowd(10, most_sending=5, most_held_bytes=100)
    guests = inside(crowd, *[None] * 5)
    for guest in guests[:4]:
        guest.held_bytes = 25
        crowd.waits(guest, Waits.READER)
    assert away(guests) == []
    guests[0].is_reading = True
    guests[1].held_bytes = 5  # it has taken the rest
    guests[4].held_bytes = 20
    crowd.waits(guests[4], Waits.READER)
    assert away(guests) == []
    crowd.waits(guests[1], None)
    guests[1].held_bytes = 40
    crowd.waits(guests[1], Waits.READER)
    assert away(guests) == [2, 3]
    assert guests[2].sent_away_for == "stuck"
    guests[0].held_bytes = 200  # whoever takes it, it is too much
    crowd.waits(guests[0], None)
    crowd.waits(guests[0], Waits.READER)
    assert 0 in away(guests)
