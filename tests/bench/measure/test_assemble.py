"""Assembly of a result from the records of its runs."""

from __future__ import annotations

import dataclasses
import json
import math
import shlex

import pytest

from dyno.bench.contract import Params, ResolvedSpec
from dyno.bench.measure.assemble import assemble, reproduce
from dyno.bench.measure.warnings import warning
from dyno.models.result import DataOrigin, Epoch, Memory, Precision, Result, Sensors, Training, Verdict
from dyno.models.spec import DeviceSelector, Measure, Processes, Spec
from tests.bench.measure.conftest import QUIET, WORKLOAD, SomeParams

TRAINING = Training(
    epochs=[Epoch(index=0, time_s=1.0, loss=2.0), Epoch(index=1, time_s=1.0, loss=1.0)],
    seed=0,
    data=DataOrigin(name="mnist", kind="real", train_samples=60000, test_samples=10000),
)


def test_phases_are_medians_windows_are_sums_and_memory_is_the_maximum(result, record):
    runs = [record([1.0] * 20, memory=Memory(host_peak_bytes=peak, reason="why")) for peak in (3, 9, 5)]
    found = result(runs)
    assert (found.phases.compile_s, found.phases.steady_s, found.phases.import_s) == (0.25, 20.0, None)
    assert (found.cpu.wall_s, found.cpu.user_s, found.cpu.system_s) == (60.0, 120.0, 1.5)
    assert (found.memory.host_peak_bytes, found.memory.device_peak_bytes, found.memory.reason) == (9, None, "why")


def test_the_precision_is_that_of_the_least_precise_run(result, record):
    errors = (3e-7, 2.9e-4, None)
    runs = [
        record(
            [1.0] * 20,
            amounts={"execution": 1.0},
            precision=Precision(
                requested="float32", observed="tf32" if error == 2.9e-4 else "float32", rel_error=error
            ),
        )
        for error in errors
    ]
    found = result(runs)
    assert found.precision.observed == "tf32"
    mismatch = next(each for each in found.warnings if each.code == "PRECISION_MISMATCH")
    assert mismatch.evidence["runs"] == [1]


SEEN = Precision(requested="float32", observed="float32", rel_error=3e-7)


@pytest.mark.parametrize("process_start", ["spawned", "forked"])
@pytest.mark.parametrize(("runs", "expected"), [(5, Verdict.TRUSTED), (4, Verdict.INDICATIVE)])
def test_five_clean_and_fully_checked_runs_are_trusted_forked_or_spawned(result, record, process_start, runs, expected):
    clean = [record([0.2] * 20, precision=SEEN) for _ in range(runs)]
    started = [
        run.model_copy(update={"summary": run.summary.model_copy(update={"process_start": process_start})})
        for run in clean
    ]
    found = result(started)
    assert (found.warnings, found.unchecked) == ([], [])
    assert found.verdict is expected


def test_a_check_that_a_run_could_not_make_lowers_the_verdict_and_gives_a_reason(result, record):
    unchecked_reasons = {"UNIT_MISMATCH": "nothing counts here"}
    first = record([0.2] * 20, precision=SEEN, unchecked=unchecked_reasons)
    others = [record([0.2] * 20, precision=SEEN) for _ in range(4)]
    found = result([first, *others])
    assert (found.unchecked, found.verdict) == (["UNIT_MISMATCH"], Verdict.INDICATIVE)
    assert found.details["unchecked_reasons"] == unchecked_reasons


def test_unknown_instructions_leave_slow_path_unchecked(result, record, device):
    found = result([record([0.2] * 20)], on=device.model_copy(update={"isa": []}))
    assert "SLOW_PATH" in found.unchecked
    assert "instructions" in str(found.details["unchecked_reasons"])


def test_codes_that_could_not_be_checked_are_listed(result, record):
    checked = [record([0.2] * 20, precision=SEEN) for _ in range(5)]
    assert result(checked, dtype="bfloat16").unchecked == ["ABOVE_PEAK"]
    assert "RESULT_INCORRECT" in result([record([0.2] * 20)]).unchecked


def codes(result):
    return {each.code for each in result.warnings}


def test_a_class_a_warning_of_one_run_makes_the_result_untrusted(result, record):
    wrong = record([0.2] * 20, warnings=[warning("RESULT_INCORRECT", rel_error=0.1)])
    found = result([wrong])
    assert found.verdict is Verdict.UNTRUSTED
    assert found.warnings[0].code == "RESULT_INCORRECT"


def test_the_width_of_the_interval_does_not_change_the_verdict(result, record):
    def judged(target):
        wild = (1.0, 1.3, 0.7, 1.9, 1.1)
        runs = [record([time_s] * 20, precision=SEEN) for time_s in wild]
        found = result(runs, spec=Spec(workload="some", measure=Measure(target_rel_ci=target)))
        return codes(found), found.verdict

    assert judged(None) == judged(0.9) == (set(), Verdict.TRUSTED)
    assert judged(0.1) == ({"TARGET_MISSED"}, Verdict.INDICATIVE)


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ({"clock_hz": 3.2e9}, "CLOCK_DRIFT"),
        (
            {"core_shares": QUIET.model_copy(update={"others": 0.3, "waited": 0.3, "most_waited": 0.3})},
            "NOISY_NEIGHBOUR",
        ),
    ],
)
def test_a_throttled_clock_and_a_burner_in_some_of_the_runs_lower_the_verdict(result, record, condition, code):
    usual = {"precision": SEEN, "clock_hz": 4e9}
    disturbed = [record([0.25] * 20, **usual | condition) for _ in range(2)]
    found = result([record([0.2] * 20, **usual) for _ in range(3)] + disturbed)
    assert code in codes(found)
    assert found.verdict is Verdict.INDICATIVE


def test_advice_about_the_spec_is_for_its_submit_and_facts_about_the_work_are_for_the_result_too(record, device):
    advice = [warning("POW2_ONLY"), warning("BATCH_SMALL"), warning("SYNTHETIC_DATA")]
    linted = dataclasses.replace(WORKLOAD, lint=lambda params, device, replicas: advice)
    runs = [record([0.2] * 20, precision=SEEN) for _ in range(5)]
    found = assemble("job_1", ResolvedSpec(Spec(workload="some"), linted, SomeParams()), device, runs)
    assert codes(found) == {"SYNTHETIC_DATA"}


def test_a_check_that_no_device_of_the_kind_allows_does_not_lower_the_verdict(result, record, device):
    tpu = device.model_copy(update={"id": "tpu:0", "kind": "tpu", "cores": []})
    runs = [record([0.2] * 20, precision=SEEN, clock_hz=None) for _ in range(5)]
    found = result(runs, on=tpu)
    assert (found.unchecked, found.verdict) == (["THROTTLED", "CLOCK_DRIFT"], Verdict.TRUSTED)
    assert result(runs).verdict is Verdict.INDICATIVE  # a processor's clock can be measured


def test_a_figure_above_the_peak_is_untrusted(result, record):
    found = result([record([0.05] * 60)])
    assert "ABOVE_PEAK" in codes(found)
    assert found.verdict is Verdict.UNTRUSTED


def test_an_idle_device_a_quota_and_an_emulated_device_raise_warnings(result, record, device):
    environment = {"container": {"cpu_cores": 1.0, "memory_bytes": None}}
    idle = record([10.0] * 20, environment=environment)
    found = result([idle], on=device.model_copy(update={"emulated": True}))
    assert {"OVERHEAD_BOUND", "CPU_QUOTA", "EMULATED_DEVICE"} <= codes(found)


def test_the_params_that_ran_replace_the_requested_ones(result, record):
    found = result([record([1.0] * 20, params={"mode": "a"})], n=7)
    assert found.params == {"n": 7, "k": None, "dtype": "float32", "mode": "a"}


def test_a_working_set_within_the_cache_raises_a_warning(result, record):
    inside = record([1.0] * 20, details={"working_set_bytes": 2**20})
    outside = record([1.0] * 20, details={"working_set_bytes": 2**30})
    assert "CACHE_RESIDENT" in codes(result([inside]))
    assert "CACHE_RESIDENT" not in codes(result([outside]))


def test_a_rising_loss_and_sample_data_raise_warnings(result, record):
    rising = [Epoch(index=place, time_s=1.0, loss=loss) for place, loss in enumerate((1.0, 2.0))]
    data = TRAINING.data.model_copy(update={"kind": "sample"})
    training = TRAINING.model_copy(update={"epochs": rising, "data": data})
    found = result([record([1.0] * 20, training=training)])
    assert {"LOSS_RISING", "SYNTHETIC_DATA"} <= codes(found)


def test_what_disturbed_the_training_is_raised_unless_the_samples_raise_it(result, record):
    loud = QUIET.model_copy(update={"others": 0.3, "waited": 0.1, "most_waited": 0.1})
    epochs = [Epoch(index=place, time_s=3.0, loss=1.0, core_shares=loud) for place in range(2)]
    sensors = Sensors(throttle_reasons=["heat"], throttled_share=0.5)
    training = TRAINING.model_copy(update={"epochs": epochs, "sensors": sensors})
    of_samples = warning("NOISY_NEIGHBOUR", others_share=0.1)

    def phases(**fields):
        run = record([1.0] * 20, training=training, **fields)
        return {each.code: each.evidence.get("phase") for each in result([run]).warnings if each.severity == "B"}

    expected = {"NOISY_NEIGHBOUR": "first epoch", "THROTTLED": "training"}
    assert expected.items() <= phases().items()
    assert phases(warnings=[of_samples])["NOISY_NEIGHBOUR"] is None


def test_sampled_steps_are_compared_with_the_epochs_in_their_unit(result, record):
    """An execution of 1000 samples takes 1 s, an epoch of 3000 samples 3 s."""

    def raised(epoch_s, *, steps=True):
        epochs = [Epoch(index=place, time_s=epoch_s, loss=2.0 - place) for place in range(2)]
        amounts = {"execution": 1.0} | ({"epoch": 3000.0} if steps else {})
        training = TRAINING.model_copy(update={"epochs": epochs})
        return "EPOCHS_DISAGREE" in codes(result([record([1.0] * 20, amounts=amounts, training=training)]))

    assert (raised(3.0), raised(3.2), raised(3.2, steps=False)) == (False, True, False)


def test_the_result_has_identity_environment_and_references(result, record, device):
    found = result([record([1.0] * 20, environment={"python": "3"}, details={"x": 1})])
    assert found.hardware_id is not None
    assert found.context_id is not None
    assert found.device["id"] == device.id
    assert found.details == {"execution": "2048 things", "x": 1}
    assert found.reference[0].year == "2019"
    assert found.energy.joules is None
    assert found.energy.reason


def test_the_command_that_reproduces_it_can_be_pasted_into_a_shell(result):
    spec = Spec(workload="some", seed=3, device=DeviceSelector(kind="cpu"), measure=Measure(min_s=0.5))
    command = (
        "dyno run some --param n=2048 --param dtype=float32 --param 'mode=a b' --device cpu --framework tensorflow "
        "--seed 3 --measure min_s=0.5"
    )
    assert result(spec=spec).reproduce == command
    assert (result(spec=Spec(workload="some")).reproduce or "").endswith(" --budget 15")
    assert "--device cpu " in (result(spec=Spec(workload="some")).reproduce or "")
    named = Spec(workload="some", device=DeviceSelector(kind="gpu", model="NVIDIA H100 PCIe"))
    words = shlex.split(result(spec=named).reproduce or "")
    assert DeviceSelector.model_validate_json(words[words.index("--device") + 1]) == named.device
    assert "--replicas 8 " in (result(spec=Spec(workload="some", replicas=8)).reproduce or "")


def test_the_command_writes_values_in_the_command_line_s_syntax(device):
    class Typed(Params):
        jit_compile: bool = True
        name: str = "true"
        sizes: list[int] = [1, 2]

    spec = Spec(workload="some", measure=Measure(processes=Processes(min=5, max=9), cold_start=True))
    words = shlex.split(reproduce(spec, Typed(), device))
    pairs = [words[place + 1].split("=", 1) for place, word in enumerate(words) if word in ("--param", "--measure")]
    assert {name: json.loads(text) for name, text in pairs} == {
        "jit_compile": True,
        "name": "true",
        "sizes": [1, 2],
        "processes": {"min": 5, "max": 9},
        "cold_start": True,
    }
    assert "--processes" not in words


def test_the_command_includes_null_unless_it_is_the_default(device):
    class Nullable(Params):
        patience: int | None = 3
        samples: int | None = None

    words = shlex.split(reproduce(Spec(workload="some"), Nullable(patience=None), device))
    assert [words[place + 1] for place, word in enumerate(words) if word == "--param"] == ["patience=null"]


def test_a_result_is_json_without_nan(result):
    text = result().model_dump_json()
    assert Result.model_validate_json(text) == result()
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} in a result"))


def test_a_result_without_runs_is_an_error(result):
    with pytest.raises(ValueError, match="at least one run"):
        result([])


def test_a_summary_drops_nothing(record):
    summary = record([1.0] * 19 + [50.0]).summary
    assert (summary.min, summary.max, summary.median, summary.mad) == (1.0, 50.0, 1.0, 0.0)
    assert (summary.low, summary.high, summary.q1, summary.q3, summary.samples) == (1.0, 1.0, 1.0, 1.0, 20)
    assert summary.phases.warmup_s == 1.0
    assert math.isclose(summary.phases.steady_s or 0, 69.0)
    assert summary.warmup_samples == 1
