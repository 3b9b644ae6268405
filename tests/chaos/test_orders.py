"""What is asked of the rig is a matter of the seed, and something that can be asked."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from chaos.orders import orders, takers
from dyno.models.spec import Spec
from dyno.workloads import resolve


def test_one_seed_has_one_list_and_another_seed_another() -> None:
    assert orders(7, 100, 60, (0, 1)) == orders(7, 100, 60, (0, 1))
    assert orders(7, 100, 60, (0, 1)) != orders(8, 100, 60, (0, 1))


def test_jobs_are_spread_over_the_run_a_thousand_of_them_tiny_and_one_in_ten_long_enough_to_be_met() -> None:
    asked = orders(7, 1250, 600, (0, 1))
    assert len({order.key for order in asked}) == 1250
    assert all(early.at_s <= late.at_s for early, late in pairwise(asked))
    assert asked[0].at_s < 6
    assert 594 < asked[-1].at_s < 600
    sizes = Counter(order.size for order in asked)
    assert sizes["tiny"] >= 1000
    assert sizes["long"] + sizes["longer"] >= 125
    assert sizes["failing"] > 0
    assert sum(order.cancel_after_s is not None for order in asked) > 20
    assert sum(order.twice for order in asked) > 20


def test_every_order_is_a_spec_that_a_workload_takes() -> None:
    for order in orders(7, 200, 600, (0, 1)):
        spec = resolve(Spec.model_validate(order.body)).spec
        assert spec.queue_if_absent
        assert spec.device.kind == "cpu"


def test_a_job_fits_the_workers_of_the_device_that_it_asks_for() -> None:
    asked = orders(7, 200, 600, (0, 1))
    devices = {"worker-0": "cpu:0-0", "worker-1": "cpu:1-1", "worker-2": "cpu:1-1"}
    fitting = takers(asked, {order.key: {order.key} for order in asked}, devices)
    by_device = {order.body["device"]: fitting[order.key] for order in asked}
    assert by_device == {"cpu": {*devices}, "cpu:0-0": {"worker-0"}, "cpu:1-1": {"worker-1", "worker-2"}}
