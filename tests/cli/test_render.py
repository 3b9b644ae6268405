"""Tables and other output for people. Text copied out of a table is complete."""

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from dyno.bench.measure.compare_results import compare
from dyno.bench.measure.warning_codes import CODES
from dyno.cli.listings import devices, print_table
from dyno.cli.progress_bars import live_progress
from dyno.cli.render import comparison, result
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
ROWS = [
    (
        "job_01M4SMMV8NVJ4W9Y1Q2M8ANPXD",
        "a sentence of [red]several[/red] words, some of them looooooooong",
        "INCONCLUSIVE",
    ),
    ("job_01M4SMMV8NVJ4W9Y1Q2M8ANPXE", None, "SAME"),
]


def shown(width, *, in_terminal):
    return printed(print_table, HEADINGS, ROWS, "a title", width=width, in_terminal=in_terminal).splitlines()


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
    data = DataOrigin(name="line", kind="real", train_samples=1, test_samples=100)
    trials = [
        Trial(seed=seed, epochs=1, loss=1.0, highest_loss=1.0, wrong=count) for seed, count in enumerate(by_trial)
    ]
    training = Training(epochs=[], seed=0, data=data, accuracy=0.8, wrong=wrong, trials=trials)
    assert text in printed(result, a_result(training=training)).splitlines()


HELD_BY = Holder(device="cpu:0-1@here", pid=77, command="python -m workers --device cpu", job="job_2")


def test_the_list_of_devices_shows_the_known_peak_and_the_process_that_uses_one():
    unknown = PeakFigure(value=None, reason="the peak table has no float32 figure for v5e")
    known = PeakFigure(value=1.576e15, provenance="datasheet")
    rows = [
        offered("tpu:0", {"float32": unknown, "bfloat16": known}),
        offered("gpu:0", {"bfloat16": known, "float32": PeakFigure(value=3.03e13)}),
        offered("cpu:0", {}, state="busy", held_by=HELD_BY),
        AwayDevice(id="gpu:1", host="east"),
    ]
    lines = [line for line in printed(devices, rows, in_terminal=False).splitlines() if "pu:" in line]
    assert [[cell.strip() for cell in line.split("│")[3:5]] for line in lines] == [
        ["idle", "1,576 TFLOP/s bfloat16"],
        ["idle", "30.3 TFLOP/s float32"],
        ["busy, held by process 77", "–"],
        ["away, cordoned", ""],
    ]
    assert "gpu:1@east" in lines[-1]


def test_progress_shows_once_which_process_uses_the_device():
    jobs = [a_job(held_by=held_by) for held_by in (None, HELD_BY, HELD_BY)]
    assert followed(jobs, in_terminal=False) == f"job_1 queued for cpu\njob_1 queued for cpu: {HELD_BY}\n"
    assert followed(jobs, in_terminal=True).count(str(HELD_BY)) == 1


def test_progress_says_how_much_time_is_left():
    waits = a_job(eta_s=300.0)
    now = Progress(phase="samples", run=2, runs=5, completed=3, total=20, fraction=0.3, eta_s=41.0)
    runs = a_job().model_copy(update={"status": "running", "progress": now})
    assert "queued for cpu, begins in about 5 min" in followed([waits], in_terminal=True)
    text = "running: run 2 of 5, samples 3/20 samples, about 41 s left"
    assert text in followed([runs], in_terminal=True)
    assert followed([waits, runs], in_terminal=False) == "job_1 queued for cpu\njob_1 running: run 2 of 5, samples\n"


def followed(jobs, *, in_terminal):
    """What the progress of the jobs prints; the bar is drawn at its end."""

    def follow_all(console):
        with live_progress(console) as follow:
            for job in jobs:
                follow(job)

    return printed(follow_all, in_terminal=in_terminal)


def a_job(**place):
    times = dict.fromkeys(("created_at", "queued_at"), datetime.now(UTC))
    urls = dict.fromkeys(("self", "result", "cancel"), "/")
    known = {"id": "job_1", "status": "queued", "done": False, "attempt": 0, "version": 1, "urls": urls}
    queue = {"name": "cpu", "position": 0} | place
    return Job.model_validate(known | times | {"spec": {"workload": "matmul"}, "queue": queue})


def offered(name, peak, **lives):
    known = {"id": name, "kind": name[:3], "model": "some", "host": "here", "memory_bytes": 1, "peak": peak}
    known |= {"state": "idle", "queue_length": 0, "worker": "w", "last_heartbeat": "2026-11-22T04:05:06Z"}
    return DeviceStatus.model_validate(known | lives)


@pytest.mark.parametrize("width", [60, 80, 100, 120, 140, 180, 240])
def test_ids_and_verdicts_of_a_comparison_are_whole_in_any_terminal(width):
    entries = [an_entry(device={"id": "cpu:0-1", "model": "A Model of Some Length @ 2.70GHz"}) for _ in range(2)]
    entries.append(an_entry(times(0.5)))
    ids = [entry.job.id for entry in entries]
    compared = compare(CompareResults(jobs=ids), entries, None, datetime.now(UTC))
    text = printed(comparison, compared, width=width)
    for word in (*ids, compared.id, "SLOWER", "indicative"):
        assert word in text


@pytest.mark.parametrize("width", [40, 80, 240])
def test_a_result_names_its_job(width):
    found = a_result()
    assert f"job: {found.job}" in printed(result, found, width=width)


GRAVE = {"code": "NOISY_NEIGHBOUR", "severity": "B", "message": "Other processes used 9%.", "evidence": {}}
LIGHT = {"code": "CACHE_RESIDENT", "severity": "C", "message": "It fits.", "evidence": {}}
DO = " ".join(CODES["NOISY_NEIGHBOUR"].do.split())


def test_a_code_that_this_version_no_longer_has_is_shown_as_it_was_stored():
    wide = {"code": "NOISY", "severity": "B", "message": "The interval over runs is ±7.27%.", "evidence": {}}
    text = printed(result, a_result(warnings=[wide], unchecked=["NOISY"]), width=80)
    assert "B NOISY: The interval over runs is ±7.27%." in text
    assert "unchecked: NOISY" in text


def test_a_whole_result_says_what_to_do_and_why_checks_were_not_made():
    reasons = {"unchecked_reasons": {"UNIT_MISMATCH": "no count"}}
    read = a_result(warnings=[GRAVE, LIGHT], unchecked=["UNIT_MISMATCH", "THROTTLED"], details=reasons)
    text = printed(result, read)
    assert "verdict: indicative (fewer than five runs)\n" in text
    assert DO in text.replace("\n", "")
    assert "CACHE_RESIDENT: It fits." in text
    assert " ".join(CODES["CACHE_RESIDENT"].do.split())[:60] not in text
    assert "unchecked: UNIT_MISMATCH (no count), THROTTLED" in text


def test_a_result_predicts_the_next_one():
    based_on = BasedOn(runs=5, jobs=12)
    repeat = Repeat(low=2.4e11, high=2.6e11, based_on=based_on, clock_hz=3.98e9, elasticity=0.9)
    predicted = a_result(metrics=[a_metric().model_copy(update={"repeat": repeat})])
    line = "next throughput (95 %): 240 GFLOP/s to 260 GFLOP/s, from 5 runs and 12 earlier results\n"
    assert line in printed(result, predicted)
    assert "next " not in printed(result, a_result())
    assert "next one 240 GFLOP/s to 260 GFLOP/s" in printed(result, predicted, "dyno result")


def test_a_whole_result_says_how_the_budget_was_spent_and_what_a_larger_one_brings():
    spent = BudgetUse(
        **{"budget_s": 15, "spent_s": 14.62, "runs": 9, "samples": 90, "starting_s": 3.6, "warmup_s": 1.1},
        **{"sampling_s": 9.9, "once_s": 0.8, "larger": [LargerBudget(budget_s=60, rel_half_width=0.0093)]},
    )
    text = printed(result, a_result(measurement=Measurement(budget=spent)))
    assert "budget: 9 runs in 14.6 s of 15 s; 60 s: about ±0.9%\n" in text


def test_a_result_is_its_headline_verdict_and_what_to_do_about_the_gravest_warning():
    read = a_result(warnings=[GRAVE, LIGHT])
    text = printed(result, read, "dyno result X")
    assert "verdict: indicative (NOISY_NEIGHBOUR, fewer than five runs)\n  Other processes used 9%.\n" in text
    assert DO[:60] in text
    assert "CACHE_RESIDENT" not in text
    assert f"job: {read.job}, with all figures: dyno result X" in text


@pytest.mark.parametrize("more", ["dyno result X", None])
def test_what_a_workload_found_out_and_its_processor_by_name_are_printed(more):
    device = {"model": "GenuineIntel family 6 model 167 stepping 1", "name": "Intel Rocket Lake", "id": "x"}
    text = printed(result, a_result(details={"listing": ["Cores: [2]"]}, device=device), more)
    assert "  Cores: [2]\n" in text
    assert " on Intel Rocket Lake (x)" in text


def a_result(**fields):
    """An indicative result with these fields, as it is read from JSON."""
    known = an_entry(times(2)).result.model_dump(mode="json")
    return Result.model_validate(known | {"verdict": "indicative"} | fields)


def printed(show, *args, width=240, in_terminal=True):
    file = io.StringIO()
    show(Console(width=width, file=file, force_terminal=in_terminal, color_system=None), *args)
    return file.getvalue()
