"""The simulation of claims: durations are input, so the results are exact."""

from dyno.store.eta import WaitingJob, simulate_claims


def job(name, **takes_s):
    return WaitingJob(name, takes_s)


def test_jobs_take_turns_on_one_device_behind_what_runs_there():
    waiting = [job("a", cpu=5.0), job("b", cpu=7.0), job("c", cpu=1.0)]
    assert simulate_claims(waiting, {"cpu": 2.0}).starts_s == {"a": 2.0, "b": 7.0, "c": 14.0}


def test_each_goes_to_the_device_that_is_free_for_it_first():
    waiting = [job("a", one=10.0, two=10.0), job("b", one=10.0, two=10.0), job("c", one=10.0, two=10.0)]
    assert simulate_claims(waiting, {"one": 0.0, "two": 4.0}).starts_s == {"a": 0.0, "b": 4.0, "c": 10.0}


def test_a_job_that_fits_one_device_only_does_not_block_the_other():
    waiting = [job("big", large=60.0), job("bigger", large=60.0), job("small", small=1.0, large=1.0)]
    assert simulate_claims(waiting, {"small": 3.0, "large": 0.0}).starts_s == {"big": 0.0, "bigger": 60.0, "small": 3.0}


def test_the_start_of_jobs_behind_a_job_of_unknown_duration_is_unknown():
    assert simulate_claims([job("new", cpu=None), job("next", cpu=1.0)], {"cpu": 3.0}).starts_s == {
        "new": 3.0,
        "next": None,
    }


def test_a_device_with_a_run_of_unknown_duration_is_chosen_last():
    waiting = [job("a", one=1.0, two=1.0), job("b", one=1.0)]
    assert simulate_claims(waiting, {"one": None, "two": 9.0}).starts_s == {"a": 9.0, "b": None}


def test_a_job_that_fits_no_device_has_no_known_start():
    assert simulate_claims([job("none"), job("some", cpu=1.0)], {"cpu": 0.0}).starts_s == {"none": None, "some": 0.0}


def test_a_new_job_behind_all_others_waits_until_a_device_is_free():
    waiting = [job("a", one=10.0), job("b", one=10.0), job("new", two=None)]
    assert simulate_claims(waiting, {"one": 1.0, "two": 0.0, "three": 3.0}).free_s == {
        "one": 21.0,
        "two": None,
        "three": 3.0,
    }
