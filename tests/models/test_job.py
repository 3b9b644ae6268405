import re
from itertools import pairwise

import pytest

from dyno.models.job import DONE, TRANSITIONS, Event, Failure, FailureClass, Status, new_job_id, new_token


def test_a_job_that_is_done_never_changes_again():
    assert {(before, after) for (before, _), after in TRANSITIONS.items() if before in DONE} == {
        (Status.CANCELED, Status.CANCELED)
    }


def test_every_status_can_be_reached_and_every_event_happens_somewhere():
    assert set(TRANSITIONS.values()) == set(Status)
    assert {event for _, event in TRANSITIONS} == set(Event)


def test_ids_sort_by_their_time_and_are_never_the_same():
    ids = [new_job_id(seconds) for seconds in (0, 1, 1.5, 1_700_000_000, 2_000_000_000)]
    assert all(earlier < later for earlier, later in pairwise(ids))


def test_ids_of_one_millisecond_keep_the_order_in_which_they_were_made():
    ids = [new_job_id(1.25) for _ in range(1000)]
    assert ids == sorted(set(ids))
    assert {job_id[:14] for job_id in ids} == {new_job_id(1.25)[:14]}  # job_ and ten digits of time


@pytest.mark.parametrize("seconds", [None, 0.0, 2.0**40 / 1000])
def test_an_id_is_a_ulid_behind_its_prefix(seconds):
    assert re.fullmatch("job_[0-7][0-9A-HJKMNP-TV-Z]{25}", new_job_id(seconds))


def test_tokens_are_random_and_long():
    tokens = {new_token() for _ in range(1000)}
    assert len(tokens) == 1000
    assert all(len(bytes.fromhex(token)) == 16 for token in tokens)


def test_a_failure_is_read_back_as_it_was_written():
    failure = Failure(failure_class=FailureClass.TIMEOUT, reason="timeout", message="too slow", signal=15)
    assert '"class":"timeout"' in failure.model_dump_json()
    assert Failure.model_validate_json(failure.model_dump_json()) == failure
