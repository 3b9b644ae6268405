"""Flags, instructions and settings that make slower kernels run; what those of a whole run say is in tests/runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dyno.devices.device import Device
from dyno.measure.slow_path import slow_path, unseen_path
from dyno.models.runner_protocol import RunRecord
from dyno.workloads.contract import Params

MakeRecord = Callable[..., RunRecord]
WIDE = ["avx2", "fma", "avx512f", "avx512_vnni"]


class Asked(Params):
    dtype: str = "float32"
    jit_compile: bool | str = "auto"


@pytest.fixture
def reasons(record: MakeRecord, device: Device) -> Callable[..., list[str]]:
    def told(
        framework: str = "tensorflow",
        kind: str = "cpu",
        isa: list[str] = WIDE,
        details: dict[str, Any] | None = None,
        flags: dict[str, str] | None = None,
        **asked: Any,
    ) -> list[str]:
        ran = record([1.0] * 20, environment={"framework": framework, "flags": flags or {}}, details=details or {})
        on = device.model_copy(update={"kind": kind, "isa": isa})
        found = slow_path(on, Asked(**asked), [ran])
        assert found is None or found.severity == "B"
        return [] if found is None else [str(reason) for reason in found.evidence["reasons"]]  # type: ignore[union-attr]

    return told


@pytest.mark.parametrize("framework", ["tensorflow", "jax", "torch"])
@pytest.mark.parametrize("kind", ["cpu", "gpu", "tpu"])
def test_a_plain_environment_is_no_slow_path(reasons: Callable[..., list[str]], framework: str, kind: str) -> None:
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
def test_a_flag_counts_for_those_alone_who_read_it(
    reasons: Callable[..., list[str]], framework: str, kind: str, flag: str, value: str
) -> None:
    [reason] = reasons(framework, kind, flags={flag: value})
    assert flag in reason
    other = {"tensorflow": "jax", "jax": "torch", "torch": "jax"}[framework]
    assert reasons(other, kind, flags={flag: value}) == []


def test_float32_without_tf32_is_what_was_asked_for(reasons: Callable[..., list[str]]) -> None:
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
def test_a_limit_on_instructions_counts_where_the_core_has_more_that_the_work_could_use(
    reasons: Callable[..., list[str]], value: str, dtype: str, kept: str | None
) -> None:
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
def test_arithmetic_that_the_core_lacks_is_said(
    reasons: Callable[..., list[str]], dtype: str, isa: list[str], wider: bool
) -> None:
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
def test_recurrent_layers_outside_the_fused_kernel_are_said_where_there_is_one(
    reasons: Callable[..., list[str]], kind: str, kernel: str, jit_compile: bool, slow: bool
) -> None:
    details = {"rnn_kernel": {"kernel": kernel, "basis": "a rule"}, "jit_compile": jit_compile}
    assert bool(reasons(kind=kind, details=details)) is slow


def test_xla_that_was_asked_for_and_not_used_is_said(reasons: Callable[..., list[str]]) -> None:
    assert reasons(details={"jit_compile": False}, jit_compile=True) == ["XLA was asked for (jit_compile) and not used"]
    assert reasons(details={"jit_compile": True}, jit_compile=True) == []
    assert reasons(details={"jit_compile": False}, jit_compile="auto") == []


def test_a_cpu_that_does_not_tell_its_instructions_leaves_the_path_unseen(device: Device) -> None:
    assert unseen_path(device.model_copy(update={"isa": []}))
    assert not unseen_path(device)
    assert not unseen_path(device.model_copy(update={"isa": [], "kind": "gpu"}))
