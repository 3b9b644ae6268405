"""What a person reads."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from rich.console import Console

from dyno.comparison import CompareResults
from dyno.devices.device import PeakFigure
from dyno.fleet import AwayDevice, DeviceStatus
from dyno.job import Holder, Job
from dyno.measure.comparison import compare
from dyno.render import _training, comparison, following, result
from dyno.result import DataOrigin, Training, Trial
from dyno.tables import devices
from tests.comparisons import an_entry, times


@pytest.mark.parametrize(
    ("wrong", "by_trial", "text"),
    [
        (20, [], "accuracy 80.0% on 100 test samples, 20 wrong"),
        (None, [25, 15], "accuracy 80.0% on 100 test samples, mean of 2 trials (25, 15 wrong)"),
        (None, [], "accuracy 80.0% on 100 test samples"),
    ],
)
def test_how_many_were_wrong_is_told_of_each_trial(wrong: int | None, by_trial: list[int], text: str) -> None:
    console = Console(record=True, width=200)
    data = DataOrigin(name="line", kind="real", train_samples=1, test_samples=100)
    trials = [Trial(seed=seed, epochs=1, loss=1.0, wrong=count) for seed, count in enumerate(by_trial)]
    _training(console, Training(epochs=[], seed=0, data=data, accuracy=0.8, wrong=wrong, trials=trials))
    assert text in console.export_text().splitlines()


def test_the_list_of_devices_shows_the_peak_that_is_known_and_of_which_dtype() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    unknown = PeakFigure(value=None, reason="the peak table has no float32 figure for v5e")
    known = PeakFigure(value=1.576e15, provenance="datasheet")
    rows = [
        offered("tpu:0", {"float32": unknown, "bfloat16": known}),
        offered("gpu:0", {"bfloat16": known, "float32": PeakFigure(value=3.03e13)}),
        offered("cpu:0", {}),
        AwayDevice(id="gpu:1", host="east"),
    ]
    devices(console, rows)
    tpu, gpu, cpu, away = (line for line in console.export_text().splitlines() if "pu:" in line)
    assert "1576 TFLOP/s bfloat16" in tpu
    assert "30.3 TFLOP/s float32" in gpu
    assert "–" in cpu
    assert "gpu:1@east" in away
    assert "away, cordoned" in away


HELD_BY = Holder(device="cpu:0-1@here", pid=77, command="python -m workers --device cpu", job="job_2")


def test_the_list_of_devices_says_which_process_uses_one() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    devices(console, [offered("cpu:0", {}).model_copy(update={"state": "busy", "held_by": HELD_BY})])
    assert "busy, held by process 77" in console.export_text()


def test_whoever_follows_a_job_is_told_once_who_uses_its_device(queued_job: Callable[[Holder | None], Job]) -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    with following(console) as follow:
        for held_by in (None, HELD_BY, HELD_BY):
            follow(queued_job(held_by))
    assert console.export_text().splitlines() == ["job_1 queued in cpu", f"job_1 queued in cpu: {HELD_BY}"]
    terminal = Console(width=200, record=True, file=io.StringIO(), force_terminal=True)
    with following(terminal) as follow:
        for held_by in (None, HELD_BY, HELD_BY):
            follow(queued_job(held_by))
    assert terminal.export_text().count(str(HELD_BY)) == 1


@pytest.fixture
def queued_job() -> Callable[[Holder | None], Job]:
    def queued(held_by: Holder | None) -> Job:
        times = dict.fromkeys(("created_at", "queued_at"), datetime.now(UTC))
        urls = dict.fromkeys(("self", "result", "cancel"), "/")
        queue = {"name": "cpu", "position": 0, "held_by": held_by}
        known = {"id": "job_1", "status": "queued", "done": False, "attempt": 0, "version": 1, "urls": urls}
        return Job.model_validate(known | times | {"spec": {"workload": "matmul"}, "queue": queue})

    return queued


def offered(name: str, peak: dict[str, PeakFigure]) -> DeviceStatus:
    known = {"id": name, "kind": name[:3], "model": "some", "host": "here", "memory_bytes": 1, "peak": peak}
    lives = {"state": "idle", "queue_length": 0, "worker": "w", "last_heartbeat": "2026-11-22T04:05:06Z"}
    return DeviceStatus.model_validate(known | lives)


@pytest.mark.parametrize("width", [60, 80, 100, 120, 140, 180, 240])
def test_ids_and_verdicts_of_a_comparison_are_whole_in_any_terminal(width: int) -> None:
    entries = [an_entry(device={"id": "cpu:0-1", "model": "A Model of Some Length @ 2.70GHz"}) for _ in range(2)]
    entries.append(an_entry(times(0.5)))
    ids = [entry.job.id for entry in entries]
    compared = compare(CompareResults(jobs=ids), entries, (), datetime.now(UTC))
    said = in_terminal(width, lambda console: comparison(console, compared))
    for word in (*ids, compared.id, "SLOWER", "indicative"):
        assert word in said


@pytest.mark.parametrize("width", [40, 80, 240])
def test_a_result_names_its_job(width: int) -> None:
    found = an_entry().result
    assert f"job: {found.job}" in in_terminal(width, lambda console: result(console, found))


def in_terminal(width: int, show: Callable[[Console], None]) -> str:
    file = io.StringIO()
    show(Console(width=width, file=file, force_terminal=True, color_system=None))
    return file.getvalue()
