"""Warnings of clean jobs are counted by job, by code and by class."""

from __future__ import annotations

from benchmarks import alarms
from dyno.measure.warnings import warning
from dyno.models.result import Result
from tests.measure.conftest import make_record
from tests.results import a_result


def result(*codes: str) -> Result:
    return a_result("job").model_copy(update={"warnings": [warning(code) for code in codes], "unchecked": ["RETRACED"]})


def test_a_job_counts_once_in_a_class_however_much_it_raises_there() -> None:
    clean, noisy, both = result("POW2_ONLY"), result("NOISY"), result("NOISY", "MULTIMODAL", "ABOVE_PEAK")
    page = alarms.lines({"matmul": [clean, noisy, both, clean]})
    row = next(line for line in page if line.startswith("| `matmul` | 4 |"))
    counts = [cell.split(",")[0] for cell in row.strip("| ").split(" | ")[2:]]
    assert counts == ["1 of 4", "2 of 4", "1 of 4", "2 of 4"]  # A, B, B but NOISY, C


def test_jobs_that_a_moving_clock_disturbed_are_in_the_row_of_all_alone() -> None:
    def at(*clocks_hz: float) -> Result:
        runs = [make_record([0.1] * 20, clock_hz=hz).summary for hz in clocks_hz]
        return result("NO_STEADY_STATE").model_copy(update={"runs": runs})

    page = alarms.lines({"matmul": [at(4e9, 4.03e9), at(4e9, 4.05e9)]})
    every, quiet = (line for line in page if line.startswith("| `matmul`") and "STEADY" not in line)
    assert every.startswith("| `matmul` | 2 | 0 of 2, 0.0%")
    assert quiet.startswith("| `matmul`, quiet | 1 | 0 of 1, 0.0%")
