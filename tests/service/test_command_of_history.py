"""`dyno history`, against the service."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest
from click.testing import Result
from typer.testing import CliRunner

from dyno.cli import app
from dyno.cli.history_commands import sparkline

Finished = Callable[..., str]


@pytest.fixture
def asked(http: httpx.Client) -> Callable[..., Result]:
    return lambda *words: CliRunner().invoke(app, [*words, "--url", str(http.base_url)], env={"COLUMNS": "250"})


def test_it_shows_series_new_environments_and_alarms(asked: Callable[..., Result], finished: Finished) -> None:
    for value in (100.0, 100.1, 99.9, 100.0, 100.2, 80.0, 80.1, 79.9, 80.0):
        finished([value * 1e9] * 2, {"labels": {"test": "shown"}}, environment={"driver": "550.54"})
    for value in (90.0, 90.1, 90.2):
        environment, context_id = {"driver": "560.28"}, "ctx_2"
        finished([value * 1e9] * 2, {"labels": {"test": "shown"}}, environment=environment, context_id=context_id)
    told = asked("history", "--workload", "matmul", "--label", "test=shown")
    assert told.exit_code == 0, told.output
    table = told.stdout
    assert "matmul spec_" in table
    assert "12" in table
    assert "90.2 GFLOP/s indicative" in table
    assert "0.800 times as good (0.79" in table
    assert "new environment: 1.126 times as good (driver 550.54 → 560.28)" in table
    assert "alm_" in table
    found = json.loads(asked("history", "--label", "test=shown", "--json").stdout)
    alarm = found["alarms"][0]["id"]
    told = asked("history", "--label", "test=shown", "--acknowledge", alarm)
    assert told.stdout == f"{alarm} is acknowledged\n"
    assert "acknowledged" in asked("history", "--label", "test=shown").stdout


def test_an_unknown_alarm_is_named(asked: Callable[..., Result]) -> None:
    told = asked("history", "--label", "test=none", "--acknowledge", "alm_1")
    assert told.exit_code == 1
    assert "no alarm alm_1 in this history" in told.stderr
    assert asked("history", "--label", "test=none").stdout == "no results\n"


def test_series_of_one_workload_are_told_apart_by_their_params(
    asked: Callable[..., Result], finished: Finished
) -> None:
    for n in (64, 128):
        finished([100e9] * 2, {"params": {"n": n, "repeats": 7}, "labels": {"test": "apart"}})
    table = asked("history", "--label", "test=apart").stdout
    assert "matmul n 64 spec_" in table
    assert "matmul n 128 spec_" in table


def test_one_result_is_a_series(asked: Callable[..., Result], finished: Finished) -> None:
    finished([100e9] * 2, {"labels": {"test": "one"}})
    told = asked("history", "--label", "test=one")
    assert told.exit_code == 0, told.output
    [row] = [line.split("│") for line in told.stdout.splitlines() if "matmul spec_" in line]
    assert [cell.strip() for cell in row[3:8]] == ["throughput", "1", "▁", "100 GFLOP/s indicative", ""]
    [series] = json.loads(asked("history", "--label", "test=one", "--json").stdout)["series"]
    assert (len(series["points"]), series["changes"], series["of_class"]["outcome"]) == (1, [], "unknown")


def test_a_metric_that_no_result_has_is_named(asked: Callable[..., Result], finished: Finished) -> None:
    finished(spec={"labels": {"test": "other"}})
    told = asked("history", "--label", "test=other", "--metric", "troughput")
    assert told.stdout == "no results with the metric troughput; results without it: 1\n"


def test_a_sparkline_has_a_character_for_each_value() -> None:
    assert sparkline([1.0, 2.0, 8.0]) == "▁▂█"
    assert sparkline([5.0, 5.0]) == "▁▁"
    assert sparkline([]) == ""
