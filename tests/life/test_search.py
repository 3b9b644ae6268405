"""The rules of a job's life, checked for every order of moves: two workers, two or three jobs, two devices."""

import pytest

from tests.life.ledger import Scripts
from tests.life.search import search
from tests.life.world import World

BEGINNING = World.beginning(jobs=3, devices=2, workers=2)


class NoReaper(Scripts):
    """Leases run out, but no process ends them."""

    def expire(self, ledger, device):
        return ledger, ("live",)


class Forgetful(Scripts):
    """An expired lease is ended, but its job isn't queued again."""

    def expire(self, ledger, device):
        after, answer = super().expire(ledger, device)
        return after._replace(queue=ledger.queue), answer


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.verify)])
def everything(request):
    """The search for that many jobs. Two have 57,000 transitions between 4,700 worlds, which take a second; three have
    187,000 between 14,500."""
    return search(Scripts(), World.beginning(jobs=request.param, devices=2, workers=2))


def test_no_order_of_things_loses_a_job_ends_it_twice_or_gives_it_to_two(everything):
    assert everything.wrong is None, [*map(str, everything.trace), everything.wrong]
    assert everything.transitions >= 50_000


def test_from_every_world_all_jobs_can_end_without_the_present_workers(everything):
    assert everything.worlds > 0
    assert everything.stuck == 0


def test_without_a_reaper_the_search_finds_jobs_that_never_end():
    assert search(NoReaper(), World.beginning(jobs=2, devices=1, workers=1)).stuck > 0


def test_without_its_place_in_the_queue_the_search_finds_a_job_lost():
    assert search(Forgetful(), BEGINNING).wrong == "job 0 is queued, and the queue doesn't say so"


# The shortest path to the violation, as reported by the search.
A_ZOMBIE = [
    "job 0 is submitted",
    "worker 0 claims for device 0",
    "worker 0 ends its attempt: requeue, unheard",
    "worker 1 claims for device 0",
]
UNCHECKED = {
    "finish": [*A_ZOMBIE, "worker 0 ends its attempt: succeed", "worker 0 ended job 0, which is another attempt's"],
    "requeue": [*A_ZOMBIE, "worker 0 ends its attempt: requeue", "worker 0 ended job 0, which is another attempt's"],
    "heartbeat": [*A_ZOMBIE, "worker 0 sends a heartbeat", "job 0 is running under 1 leases, or under another's"],
    "claim": [
        "job 0 is submitted",
        "job 1 is submitted",
        "worker 0 claims for device 0",
        "worker 1 claims for device 0",
        "job 0 is running under 0 leases, or under another's",
    ],
}


@pytest.mark.parametrize("script", UNCHECKED)
def test_the_search_finds_what_goes_wrong_where_a_script_does_not_look_whose_the_job_is(script):
    found = search(Scripts(unchecked={script}), BEGINNING)
    assert [*map(str, found.trace), found.wrong] == UNCHECKED[script]
