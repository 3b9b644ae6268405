"""Warnings of clean jobs are counted by job, by code and by class."""

from __future__ import annotations

from benchmarks import alarms
from dyno.measure.warnings import warning
from dyno.models.result import Result
from dyno.models.spec import Spec
from dyno.workloads import resolve
from tests.measure.conftest import make_record
from tests.results import a_result


def result(*codes: str) -> Result:
    return a_result("job").model_copy(update={"warnings": [warning(code) for code in codes], "unchecked": ["RETRACED"]})


def test_the_jobs_come_in_turns_and_ask_for_the_default_method_but_for_the_target() -> None:
    specs = alarms.specs(9)
    assert list(specs)[:4] == ["matmul.00", "mnist_cnn.00", "mnist_cnn to 1 %.00", "matmul.01"]
    assert list(specs)[-3:] == ["mnist_cnn to 1 %.07", "matmul.08", "mnist_cnn.08"]
    asked = {name: resolve(Spec.model_validate(spec, strict=True)).spec.measure for name, spec in specs.items()}
    default = Spec(workload="matmul").measure
    assert asked["matmul.00"] == asked["mnist_cnn to 1 %.00"] == default
    assert asked["mnist_cnn.00"] == default.model_copy(update={"target_rel_ci": 0.02})


def test_a_job_counts_once_in_a_class_however_much_it_raises_there() -> None:
    clean, noisy, both = result("POW2_ONLY"), result("NOISY"), result("NOISY", "MULTIMODAL", "ABOVE_PEAK")
    page = alarms.lines({"matmul": [clean, noisy, both, clean]})
    row = next(line for line in page if line.startswith("| `matmul` | 4 |"))
    counts = [cell.split(",")[0] for cell in row.strip("| ").split(" | ")[2:]]
    assert counts == ["1 of 4", "2 of 4", "1 of 4", "2 of 4"]  # A, B, B but NOISY, C


def test_each_code_has_a_row_the_gravest_first() -> None:
    page = alarms.lines({"matmul": [result("NOISY", "MULTIMODAL", "ABOVE_PEAK"), result("NOISY")]})
    codes = [line.split(" | ")[1:4] for line in page if line.startswith("| `matmul` | `")]
    assert [row[:2] for row in codes] == [["`ABOVE_PEAK`", "A"], ["`NOISY`", "B"], ["`MULTIMODAL`", "B"]]
    assert codes[1][2].startswith("2 of 2, 100%")


def test_verdicts_come_with_what_nobody_looked_for() -> None:
    assert "- `matmul`: 2 indicative; not checked: RETRACED" in alarms.lines({"matmul": [result(), result()]})


def test_jobs_that_a_moving_clock_disturbed_are_in_the_row_of_all_alone() -> None:
    def at(*clocks_hz: float) -> Result:
        runs = [make_record([0.1] * 20, clock_hz=hz).summary for hz in clocks_hz]
        return result("NO_STEADY_STATE").model_copy(update={"runs": runs})

    page = alarms.lines({"matmul": [at(4e9, 4.03e9), at(4e9, 4.05e9)]})
    every, quiet = (line for line in page if line.startswith("| `matmul`") and "STEADY" not in line)
    assert every.startswith("| `matmul` | 2 | 0 of 2, 0%")
    assert quiet.startswith("| `matmul`, quiet | 1 | 0 of 1, 0%")
