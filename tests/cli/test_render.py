"""Tables and other output for people. Text copied out of a table is complete."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from dyno.bench.measure.compare_results import compare
from dyno.bench.measure.warning_codes import CODES
from dyno.cli.render import Cells, _training, comparison, devices, live_progress, print_table, result
from dyno.models.comparison import CompareResults
from dyno.models.device import PeakFigure
from dyno.models.inventory import AwayDevice, DeviceStatus
from dyno.models.job import Holder, Job, Progress
from dyno.models.result import (
    BasedOn,
    BudgetUse,
    DataOrigin,
    LargerBudget,
    Measurement,
    Repeat,
    Result,
    Training,
    Trial,
)
from tests.comparisons import a_metric, an_entry, times

HEADINGS = ("job", "what there is to say of it", "state")
ROWS: list[Cells] = [
    (
        "job_01M4SMMV8NVJ4W9Y1Q2M8ANPXD",
        "a sentence of [red]several[/red] words, some of them looooooooong",
        "INCONCLUSIVE",
    ),
    ("job_01M4SMMV8NVJ4W9Y1Q2M8ANPXE", None, "SAME"),
]


def shown(width, *, in_terminal):
    file = io.StringIO()
    console = Console(width=width, file=file, force_terminal=in_terminal, color_system=None)
    print_table(console, HEADINGS, ROWS, "a title")
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [20, 40, 60, 70, 80, 100, 140, 200])
@pytest.mark.parametrize("in_terminal", [True, False])
def test_no_word_is_cut_or_lies_in_two_lines(width, in_terminal):
    text = "\n".join(shown(width, in_terminal=in_terminal))
    for word in " ".join([*HEADINGS, *(cell or "" for row in ROWS for cell in row)]).split():
        assert word in text


@pytest.mark.parametrize("width", [80, 100, 140, 200])
def test_a_terminal_with_room_for_every_word_gets_a_table_that_fits_it(width):
    lines = shown(width, in_terminal=True)
    assert any(line.startswith("┏") for line in lines)
    assert max(map(len, lines)) <= width


def test_in_a_narrower_one_each_cell_is_a_line():
    lines = shown(60, in_terminal=True)
    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith("job ")] == [row[0] for row in ROWS]


def test_in_a_pipe_a_row_is_a_line_however_long():
    lines = [line for line in shown(20, in_terminal=False) if "job_" in line]
    assert len(lines) == len(ROWS)
    assert "several[/red] words, some of them looooooooong" in lines[0]
    assert "INCONCLUSIVE" in lines[0]


@pytest.mark.parametrize(
    ("wrong", "by_trial", "text"),
    [
        (20, [], "accuracy 80.0% on 100 test samples, 20 wrong"),
        (None, [25, 15], "accuracy 80.0% on 100 test samples, mean of 2 trials (25, 15 wrong)"),
        (None, [], "accuracy 80.0% on 100 test samples"),
    ],
)
def test_the_number_of_wrong_samples_is_shown_for_each_trial(wrong, by_trial, text):
    console = Console(record=True, width=200)
    data = DataOrigin(name="line", kind="real", train_samples=1, test_samples=100)
    trials = [
        Trial(seed=seed, epochs=1, loss=1.0, highest_loss=1.0, wrong=count) for seed, count in enumerate(by_trial)
    ]
    _training(console, Training(epochs=[], seed=0, data=data, accuracy=0.8, wrong=wrong, trials=trials))
    assert text in console.export_text().splitlines()


def test_the_list_of_devices_shows_the_known_peak_and_its_dtype():
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
    assert "1,576 TFLOP/s bfloat16" in tpu
    assert "30.3 TFLOP/s float32" in gpu
    assert "–" in cpu
    assert "gpu:1@east" in away
    assert "away, cordoned" in away


HELD_BY = Holder(device="cpu:0-1@here", pid=77, command="python -m workers --device cpu", job="job_2")


def test_the_list_of_devices_shows_which_process_uses_one():
    console = Console(width=200, record=True, file=io.StringIO())
    devices(console, [offered("cpu:0", {}).model_copy(update={"state": "busy", "held_by": HELD_BY})])
    assert "busy, held by process 77" in console.export_text()


def test_progress_shows_once_which_process_uses_the_device(queued_job):
    console = Console(width=200, record=True, file=io.StringIO())
    with live_progress(console) as follow:
        for held_by in (None, HELD_BY, HELD_BY):
            follow(queued_job(held_by))
    assert console.export_text().splitlines() == ["job_1 queued for cpu", f"job_1 queued for cpu: {HELD_BY}"]
    terminal = Console(width=200, record=True, file=io.StringIO(), force_terminal=True)
    with live_progress(terminal) as follow:
        for held_by in (None, HELD_BY, HELD_BY):
            follow(queued_job(held_by))
    assert terminal.export_text().count(str(HELD_BY)) == 1


def test_progress_says_how_much_time_is_left(queued_job):
    waiting = queued_job(None)
    waits = waiting.model_copy(update={"queue": waiting.queue.model_copy(update={"eta_s": 300.0})})
    now = Progress(phase="samples", run=2, runs=5, completed=3, total=20, fraction=0.3, eta_s=41.0)
    runs = waiting.model_copy(update={"status": "running", "progress": now})
    terminal = Console(width=200, record=True, file=io.StringIO(), force_terminal=True)
    for job in (waits, runs):
        with live_progress(terminal) as follow:  # draws the bar at its end
            follow(job)
    shown = terminal.export_text()
    assert "queued for cpu, begins in about 5 min" in shown
    assert "running: run 2 of 5, samples 3/20 samples, about 41 s left" in shown
    pipe = Console(width=200, record=True, file=io.StringIO())
    with live_progress(pipe) as follow:
        for job in (waits, runs):
            follow(job)
    assert pipe.export_text().splitlines() == ["job_1 queued for cpu", "job_1 running: run 2 of 5, samples"]


@pytest.fixture
def queued_job():
    def queued(held_by):
        times = dict.fromkeys(("created_at", "queued_at"), datetime.now(UTC))
        urls = dict.fromkeys(("self", "result", "cancel"), "/")
        queue = {"name": "cpu", "position": 0, "held_by": held_by}
        known = {"id": "job_1", "status": "queued", "done": False, "attempt": 0, "version": 1, "urls": urls}
        return Job.model_validate(known | times | {"spec": {"workload": "matmul"}, "queue": queue})

    return queued


def offered(name, peak):
    known = {"id": name, "kind": name[:3], "model": "some", "host": "here", "memory_bytes": 1, "peak": peak}
    lives = {"state": "idle", "queue_length": 0, "worker": "w", "last_heartbeat": "2026-11-22T04:05:06Z"}
    return DeviceStatus.model_validate(known | lives)


@pytest.mark.parametrize("width", [60, 80, 100, 120, 140, 180, 240])
def test_ids_and_verdicts_of_a_comparison_are_whole_in_any_terminal(width):
    entries = [an_entry(device={"id": "cpu:0-1", "model": "A Model of Some Length @ 2.70GHz"}) for _ in range(2)]
    entries.append(an_entry(times(0.5)))
    ids = [entry.job.id for entry in entries]
    compared = compare(CompareResults(jobs=ids), entries, None, datetime.now(UTC))
    text = in_terminal(width, lambda console: comparison(console, compared))
    for word in (*ids, compared.id, "SLOWER", "indicative"):
        assert word in text


@pytest.mark.parametrize("width", [40, 80, 240])
def test_a_result_names_its_job(width):
    found = an_entry().result
    assert f"job: {found.job}" in in_terminal(width, lambda console: result(console, found))


def test_a_code_that_this_version_no_longer_has_is_shown_as_it_was_stored():
    stored = an_entry(times(2)).result.model_dump(mode="json")
    wide = {"code": "NOISY", "severity": "B", "message": "The interval over runs is ±7.27%.", "evidence": {}}
    read = Result.model_validate(stored | {"warnings": [wide], "unchecked": ["NOISY"]})
    text = in_terminal(80, lambda console: result(console, read))
    assert "B NOISY: The interval over runs is ±7.27%." in text
    assert "unchecked: NOISY" in text


def test_a_whole_result_says_what_to_do_and_why_checks_were_not_made():
    stored = an_entry(times(2)).result.model_dump(mode="json")
    grave = {"code": "NOISY_NEIGHBOUR", "severity": "B", "message": "Other processes used 9%.", "evidence": {}}
    light = {"code": "CACHE_RESIDENT", "severity": "C", "message": "It fits.", "evidence": {}}
    known = {
        "unchecked": ["UNIT_MISMATCH", "THROTTLED"],
        "details": {"unchecked_reasons": {"UNIT_MISMATCH": "no count"}},
    }
    read = Result.model_validate(stored | known | {"warnings": [grave, light], "verdict": "indicative"})
    text = in_terminal(240, lambda console: result(console, read))
    assert "verdict: indicative (fewer than five runs)\n" in text
    assert " ".join(CODES["NOISY_NEIGHBOUR"].do.split()) in text.replace("\n", "")
    assert " ".join(CODES["CACHE_RESIDENT"].do.split())[:60] not in text
    assert "unchecked: UNIT_MISMATCH (no count), THROTTLED" in text


def test_a_result_predicts_the_next_one():
    based_on = BasedOn(runs=5, jobs=12)
    repeat = Repeat(low=2.4e11, high=2.6e11, based_on=based_on, clock_hz=3.98e9, elasticity=0.9)
    metric = a_metric().model_copy(update={"repeat": repeat})
    text = in_terminal(240, lambda console: result(console, an_entry(metrics=[metric]).result))
    assert "next throughput (95 %): 240 GFLOP/s to 260 GFLOP/s, from 5 runs and 12 earlier results\n" in text
    assert "next " not in in_terminal(240, lambda console: result(console, an_entry().result))
    brief = in_terminal(240, lambda console: result(console, an_entry(metrics=[metric]).result, "dyno result"))
    assert "next one 240 GFLOP/s to 260 GFLOP/s" in brief


def test_a_whole_result_says_how_the_budget_was_spent_and_what_a_larger_one_brings():
    spent = BudgetUse(
        budget_s=15,
        spent_s=14.62,
        runs=9,
        samples=90,
        starting_s=3.6,
        warmup_s=1.1,
        sampling_s=9.9,
        once_s=0.8,
        larger=[LargerBudget(budget_s=60, rel_half_width=0.0093)],
    )
    measured = an_entry().result.model_copy(update={"measurement": Measurement(budget=spent)})
    text = in_terminal(240, lambda console: result(console, measured))
    assert "budget: 9 runs in 14.6 s of 15 s; 60 s: about ±0.9%\n" in text


def test_a_result_is_its_headline_verdict_and_what_to_do_about_the_gravest_warning():
    stored = an_entry(times(2)).result.model_dump(mode="json")
    grave = {"code": "NOISY_NEIGHBOUR", "severity": "B", "message": "Other processes used 9%.", "evidence": {}}
    light = {"code": "CACHE_RESIDENT", "severity": "C", "message": "It fits.", "evidence": {}}
    read = Result.model_validate(stored | {"warnings": [grave, light], "verdict": "indicative"})
    text = in_terminal(240, lambda console: result(console, read, "dyno result X"))
    assert "verdict: indicative (NOISY_NEIGHBOUR, fewer than five runs)\n  Other processes used 9%.\n" in text
    assert " ".join(CODES["NOISY_NEIGHBOUR"].do.split())[:60] in text
    assert "CACHE_RESIDENT" not in text
    assert f"job: {read.job}, with all figures: dyno result X" in text
    assert "CACHE_RESIDENT" in in_terminal(240, lambda console: result(console, read))


def test_what_a_workload_found_out_is_printed():
    read = Result.model_validate(an_entry().result.model_dump(mode="json") | {"details": {"listing": ["Cores: [2]"]}})
    for more in ("dyno result X", None):
        assert "  Cores: [2]\n" in in_terminal(240, lambda console, more=more: result(console, read, more))


def test_a_processor_is_called_by_its_name():
    device = {"model": "GenuineIntel family 6 model 167 stepping 1", "name": "Intel Rocket Lake", "id": "x"}
    read = Result.model_validate(an_entry().result.model_dump(mode="json") | {"device": device})
    assert " on Intel Rocket Lake (x)" in in_terminal(240, lambda console: result(console, read, "dyno result X"))


def in_terminal(width, show):
    file = io.StringIO()
    show(Console(width=width, file=file, force_terminal=True, color_system=None))
    return file.getvalue()
