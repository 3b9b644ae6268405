"""The seeded jobs that clients submit during a run; five in six of them are tiny."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from pydantic import JsonValue

Size = Literal["tiny", "long", "longer", "with a file", "failing"]

# Far below the method's minimum, as their figures don't matter.
_TINY: Mapping[str, JsonValue] = {"min_samples": 1, "min_s": 0, "max_s": 0.02}
_SIZES: Mapping[Size, int] = {"tiny": 84, "long": 10, "longer": 2, "with a file": 3, "failing": 1}
_LASTS_S: Mapping[Size, tuple[float, float]] = {"long": (0.5, 2.0), "longer": (3.0, 6.0)}  # so that faults meet them
_CANCELED = 0.06
_CANCELED_AFTER_S = (0.0, 3.0)
_TWICE = 0.08


class Order(NamedTuple):
    """A job to submit, `at_s` seconds after the run's start.

    `twice`: submit it twice at once, like an impatient client.
    """

    key: str
    at_s: float
    size: Size
    body: dict[str, JsonValue]
    twice: bool
    cancel_after_s: float | None


def orders(seed: int, count: int, duration_s: float, cores: tuple[int, int]) -> list[Order]:
    """`count` jobs at random times within the duration. `cores`: the cores of the two CPU devices."""
    rng = random.Random(f"orders {seed}")
    times_s = sorted(rng.uniform(0, duration_s) for _ in range(count))
    return [_order(rng, f"{seed}-{number}", at_s, cores) for number, at_s in enumerate(times_s)]


def takers(
    asked: Iterable[Order], accepted: Mapping[str, Iterable[str]], devices: Mapping[str, str]
) -> dict[str, frozenset[str]]:
    """The workers that may take each job. `devices`: the device of each worker."""
    return {
        job: frozenset(worker for worker, device in devices.items() if order.body["device"] in ("cpu", device))
        for order in asked
        for job in accepted.get(order.key, ())
    }


def _order(rng: random.Random, key: str, at_s: float, cores: tuple[int, int]) -> Order:
    size = rng.choices(list(_SIZES), list(_SIZES.values()))[0]
    own = [f"cpu:{core}-{core}" for core in cores]
    body: dict[str, JsonValue] = {
        **_work(rng, size),
        "device": rng.choice(["cpu", "cpu", "cpu", "cpu", *own]),
        "priority": rng.choice(["low", "normal", "high"]),
        "queue_if_absent": True,  # while all workers are down, the job waits
        "labels": {"order": key},
    }
    canceled = rng.random() < _CANCELED
    cancel_after_s = rng.uniform(*_CANCELED_AFTER_S) if canceled else None
    return Order(key, round(at_s, 3), size, body, rng.random() < _TWICE, cancel_after_s)


def _work(rng: random.Random, size: Size) -> dict[str, JsonValue]:
    if size == "with a file":
        return {
            "workload": "device_info",
            "params": {"ask_frameworks": False},
            "measure": {**_TINY, "processes": 1},
        }
    matmul: dict[str, JsonValue] = {"workload": "matmul", "params": {"n": 64, "repeats": 1}}
    if size == "failing":  # it needs 8 s, and its timeout is 1.5 s
        measure: dict[str, JsonValue] = {"processes": 1, "min_samples": 200, "min_s": 0, "max_s": 8}
        return {**matmul, "measure": measure, "timeout_s": 1.5}
    if size in _LASTS_S:
        for_s = round(rng.uniform(*_LASTS_S[size]), 2)
        return {**matmul, "measure": {"processes": 1, "min_samples": 20, "min_s": for_s, "max_s": for_s}}
    return {**matmul, "measure": {**_TINY, "processes": rng.choice([1, 1, 2])}}
