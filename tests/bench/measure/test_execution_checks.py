"""Readings, flags and settings that raise warnings about the execution.

tests/bench/frameworks/cases provokes the readings, and tests/bench/runner whole runs.
"""

from __future__ import annotations

import pytest

from dyno.bench.contract import Params
from dyno.bench.measure.execution_checks import (
    DrainReading,
    WorkGrowth,
    async_timing,
    compile_in_timing,
    path_unknown,
    retraced,
    slow_path,
    unit_mismatch,
    work_eliminated,
)


@pytest.mark.parametrize(
    ("execution_s", "drain_s", "late"),
    [(0.05, 0.0026, True), (0.05, 0.0024, False), (0.01, 0.0009, False), (0.01, 0.0011, True), (0.1, 0.0, False)],
)
def test_a_drain_is_late_above_5_percent_and_a_millisecond(execution_s, drain_s, late):
    assert (async_timing([DrainReading(execution_s, drain_s)]) is not None) is late


def test_the_duration_of_an_idle_drain_does_not_count_as_a_wait():
    assert async_timing([DrainReading(0.05, 0.02, idle_s=0.019)]) is None
    assert async_timing([DrainReading(0.05, 0.02, idle_s=0.001)]) is not None


def test_one_reading_without_a_wait_clears_the_clock():
    late, clean = DrainReading(0.05, 0.04), DrainReading(0.05, 0.0)
    assert async_timing([]) is None
    assert async_timing([late, clean]) is None
    assert (raised := async_timing([late, DrainReading(0.06, 0.03), late])) is not None
    assert raised.severity == "A"
    assert (raised.evidence["drain_s"], raised.evidence["execution_s"]) == (0.03, 0.06)
    assert "30.0 ms" in raised.message


@pytest.mark.parametrize(("grown_s", "raised"), [(2.0, False), (1.5, False), (1.49, True), (1.0, True), (0.9, True)])
def test_twice_the_work_must_take_at_least_half_as_long_again(grown_s, raised):
    assert (work_eliminated(WorkGrowth(2, 1.0, grown_s), "executions") is not None) is raised


def test_a_call_that_outweighs_its_work_needs_more_added_work():
    """A call of 0.9 s with 0.1 s of work, which takes the device at least 0.05 s."""
    honest = {times: WorkGrowth(times, 1.0, 0.9 + 0.1 * times, 0.05) for times in (2, 16)}
    assert not honest[2].telling
    assert work_eliminated(honest[2], "work") is None
    assert honest[16].telling
    assert work_eliminated(honest[16], "work") is None
    none_of_it = WorkGrowth(16, 1.0, 1.02, 0.05)
    assert (raised := work_eliminated(none_of_it, "work in one execution")) is not None
    assert raised.message == "16 times the work in one execution took 1.02 times as long."
    assert raised.evidence["least_added_s"] == pytest.approx(0.5 * 15 * 0.05)


def test_work_above_the_ceiling_is_judged_by_its_own_time():
    """The device needs ten times as long, so the figure is above its peak. The time must still grow with the work."""
    assert work_eliminated(WorkGrowth(2, 1.0, 2.0, 10.0), "work") is None
    assert work_eliminated(WorkGrowth(2, 1.0, 1.1, 10.0), "work") is not None


@pytest.mark.parametrize(("counted", "raised"), [(1.0, False), (1.66, False), (0.61, False), (2.0, True), (0.5, True)])
def test_units_differ_beyond_two_thirds(counted, raised):
    found = unit_mismatch(1.0, counted)
    assert (found is not None) is raised
    assert found is None or found.evidence["counted_flop"] == counted


def test_compiled_functions_are_named_once_and_counted_each_time():
    assert compile_in_timing([]) is None
    assert (raised := compile_in_timing(["step", "step", "loss"])) is not None
    assert raised.evidence == {"times": 3, "functions": ["step", "loss"]}


def test_only_a_known_function_counts_as_retraced():
    assert retraced(["step"], []) is None
    assert retraced(["step"], ["another"]) is None
    assert (raised := retraced(["step"], ["another", "step"])) is not None
    assert raised.evidence == {"times": 1, "functions": ["step"]}


WIDE = ["avx2", "fma", "avx512f", "avx512_vnni"]


class Asked(Params):
    dtype: str = "float32"
    jit_compile: bool | str = "auto"


@pytest.fixture
def reasons(record, device):
    def found_reasons(framework="tensorflow", kind="cpu", isa=WIDE, details=None, flags=None, **asked):
        ran = record([1.0] * 20, environment={"framework": framework, "flags": flags or {}}, details=details or {})
        on = device.model_copy(update={"kind": kind, "isa": isa})
        found = slow_path(on, Asked(**asked), [ran])
        assert found is None or found.severity == "B"
        return [] if found is None else [str(reason) for reason in found.evidence["reasons"]]

    return found_reasons


@pytest.mark.silent("SLOW_PATH")
@pytest.mark.parametrize("framework", ["tensorflow", "jax", "torch"])
@pytest.mark.parametrize("kind", ["cpu", "gpu", "tpu"])
def test_a_plain_environment_is_not_a_slow_path(reasons, framework, kind):
    flags = {"TF_CPP_MIN_LOG_LEVEL": "1", "XLA_FLAGS": "--xla_dump_to=<path>", "TF_ENABLE_ONEDNN_OPTS": "1"}
    assert reasons(framework, kind, flags=flags) == []


@pytest.mark.parametrize(
    ("framework", "kind", "flag", "value"),
    [
        ("tensorflow", "cpu", "TF_ENABLE_ONEDNN_OPTS", "0"),
        ("tensorflow", "gpu", "TF_DETERMINISTIC_OPS", "true"),
        ("jax", "cpu", "XLA_FLAGS", "--xla_dump_to=<path> --xla_backend_optimization_level=0"),
        ("jax", "cpu", "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false"),
        ("jax", "gpu", "XLA_FLAGS", "--xla_gpu_deterministic_ops --xla_gpu_autotune_level=4"),
        ("torch", "cpu", "MKL_ENABLE_INSTRUCTIONS", "AVX2"),
    ],
)
def test_a_flag_counts_only_for_its_readers(reasons, framework, kind, flag, value):
    [reason] = reasons(framework, kind, flags={flag: value})
    assert flag in reason
    other = {"tensorflow": "jax", "jax": "torch", "torch": "jax"}[framework]
    assert reasons(other, kind, flags={flag: value}) == []


def test_disabling_tf32_is_not_a_slow_path(reasons):
    assert reasons("tensorflow", "gpu", flags={"NVIDIA_TF32_OVERRIDE": "0"}) == []


@pytest.mark.parametrize(
    ("value", "dtype", "kept"),
    [
        ("AVX2", "float32", "avx512f"),
        ("SSE41", "float32", "avx2, avx512f"),
        ("AVX512_CORE", "float32", None),
        ("AVX512_CORE", "int8", "avx512_vnni"),
        ("AVX512_CORE_AMX", "int8", None),
        ("ALL", "float32", None),
    ],
)
def test_a_limit_on_instructions_counts_if_the_work_could_use_more(reasons, value, dtype, kept):
    found = reasons(flags={"ONEDNN_MAX_CPU_ISA": value}, dtype=dtype)
    assert [reason.partition("the core has ")[2] for reason in found] == ([] if kept is None else [kept])
    assert reasons("jax", flags={"ONEDNN_MAX_CPU_ISA": value}, dtype=dtype) == []
    assert len(reasons("jax", flags={"XLA_FLAGS": "--xla_cpu_max_isa=AVX2"})) == 1


@pytest.mark.parametrize(
    ("dtype", "isa", "wider"),
    [
        ("bfloat16", WIDE, True),
        ("bfloat16", [*WIDE, "avx512_bf16"], False),
        ("int8", ["avx2"], True),
        ("int8", WIDE, False),
        ("float32", ["avx2"], False),
        ("bfloat16", [], False),
    ],
)
def test_missing_native_arithmetic_is_a_slow_path(reasons, dtype, isa, wider):
    assert bool(reasons(isa=isa, dtype=dtype)) is wider


@pytest.mark.parametrize(
    ("kind", "kernel", "jit_compile", "slow"),
    [
        ("gpu", "fused (cuDNN)", False, False),
        ("gpu", "fused (cuDNN)", True, True),
        ("gpu", "while loop", False, True),
        ("cpu", "while loop", False, False),
    ],
)
def test_recurrent_layers_outside_an_available_fused_kernel_are_a_slow_path(reasons, kind, kernel, jit_compile, slow):
    details = {"rnn_kernel": {"kernel": kernel, "basis": "a rule"}, "jit_compile": jit_compile}
    assert bool(reasons(kind=kind, details=details)) is slow


def test_xla_that_fails_on_an_accelerator_is_a_slow_path_and_says_why(reasons):
    failed = {"jit_compile": False, "jit_compile_choice": {"chosen": False, "xla_error": "InternalError: no libdevice"}}
    told = ["XLA failed to compile the step (InternalError: no libdevice)"]
    assert reasons(kind="gpu", details=failed) == told
    assert reasons(kind="cpu", details=failed) == []
    slower = failed | {"jit_compile_choice": {"chosen": False, "how": "measured: the faster setting"}}
    assert reasons(kind="gpu", details=slower) == []


def test_requested_but_unused_xla_is_a_slow_path(reasons):
    assert reasons(details={"jit_compile": False}, jit_compile=True) == ["XLA was requested (jit_compile) but not used"]
    assert reasons(details={"jit_compile": True}, jit_compile=True) == []
    assert reasons(details={"jit_compile": False}, jit_compile="auto") == []


def test_unknown_instructions_of_a_cpu_leave_the_path_unknown(device):
    assert path_unknown(device.model_copy(update={"isa": []}))
    assert not path_unknown(device)
    assert not path_unknown(device.model_copy(update={"isa": [], "kind": "gpu"}))
