"""Several sizes in one job, and dtypes that only some devices support."""

import numpy as np
import pytest

from dyno.bench.contract import HasCases
from dyno.bench.registry import validate_params, workload
from dyno.bench.workloads._matmul_params import LONGEST, START_S, estimate, flops
from dyno.bench.workloads.matmul import lint
from dyno.errors import InvalidSpec, RunFailed
from tests.wrong_steps import StartedTensorFlow

MATMUL = workload("matmul")


def _params(**params):
    return validate_params(MATMUL, params)


def _verified(context, **params):
    built = MATMUL.build(_params(**params), context)
    built.compile()
    for case in built.cases if isinstance(built, HasCases) else ():
        case.execute(1)
    built.execute(2)
    return built.verify()


def _int8(**params):
    return {"dtype": "int8", "mode": "dispatch", "repeats": 2} | params


def _refused(**params):
    with pytest.raises(InvalidSpec) as refused:
        _params(**params)
    return [(error.pointer.removeprefix("/params"), error.code) for error in refused.value.errors]


def test_each_size_is_a_case_with_its_own_work(context):
    built = MATMUL.build(_params(sizes=[8, [2, 3, 5]], mode="dispatch", repeats=3), context())
    assert isinstance(built, HasCases)
    assert [case.name for case in built.cases] == ["8x8x8", "2x3x5"]
    assert MATMUL.cases_of(_params(sizes=[8, [2, 3, 5]], mode="dispatch")) == ("8x8x8", "2x3x5")
    assert [case.work for case in built.cases] == [2 * 8**3 * 3, 2 * 2 * 3 * 5 * 3]
    assert [case.amounts for case in built.cases] == [{"execution": case.work} for case in built.cases]
    assert built.work == flops(_params(sizes=[8, 9], repeats=3)) == 2 * 8**3 * 3


@pytest.mark.parametrize("mode", ["chain", "dispatch"])
def test_each_size_is_verified_and_the_largest_error_reported(context, mode):
    found = _verified(context(), sizes=[2, 64, 48], mode=mode, dtype="bfloat16", repeats=3)
    assert found.warnings == []
    assert found.precision.observed == "bfloat16"
    sizes = found.details["sizes"]
    assert list(sizes) == ["2x2x2", "64x64x64", "48x48x48"]
    assert found.details["working_set_bytes"] == min(size["working_set_bytes"] for size in sizes.values())


def test_a_check_that_one_size_lacks_is_unchecked_for_the_job(context):
    found = _verified(context(), sizes=[3, 64], repeats=100, dtype="bfloat16")
    assert found.warnings == []
    assert "RESULT_INCORRECT" not in found.verified
    assert "3 x 3 chain" in found.unchecked["RESULT_INCORRECT"]


def test_the_precision_of_one_size_stands_for_no_other_that_is_too_small_to_tell_its_own(context):
    found = _verified(context(), sizes=[64, 16], mode="dispatch")
    assert found.precision.observed == "float32"
    assert found.unchecked == {"PRECISION_MISMATCH": "the product of 16x16x16 doesn't identify its precision"}
    assert _verified(context(), sizes=[64, 48], mode="dispatch").unchecked == {}


def test_a_wrong_size_is_named(tensorflow, context):
    class WrongAt24(StartedTensorFlow):
        def matmul(self, a, b):
            product = super().matmul(a, b)
            return product * np.float32(1.5) if a.shape[0] == 24 else product

    found = _verified(context(WrongAt24(tensorflow)), sizes=[16, 24], repeats=2)
    assert [(raised.code, raised.evidence["size"]) for raised in found.warnings] == [("RESULT_INCORRECT", "24x24x24")]


@pytest.mark.parametrize(
    ("params", "refused"),
    [
        ({"sizes": [16, [1, 2, 3]]}, [("/sizes/1", "not-square")]),
        ({"sizes": [16, 17, 16]}, [("/sizes/2", "twice")]),
        ({"sizes": [16], "n": 8}, [("/sizes", "excess")]),
        ({"sizes": [[4, 4, 4]], "m": 4, "k": 4, "n": 4}, [("/sizes", "excess")]),
        ({"sizes": [64], "dtype": "bfloat16", "repeats": 6000}, [("/sizes/0", "unverifiable")]),
        ({"n": 16, "dtype": "int8"}, [("/mode", "not-chained")]),
        (_int8(n=LONGEST + 1), [("/n", "overflow")]),
        (_int8(m=1, k=LONGEST + 1, n=1), [("/k", "overflow")]),
        (_int8(sizes=[8, [1, LONGEST + 1, 1]]), [("/sizes", "overflow")]),
    ],
)
def test_invalid_sizes_are_refused_with_their_pointer(params, refused):
    assert _refused(**params) == refused


def test_sizes_of_no_form_that_is_known_are_refused():
    for sizes in ([], [0], [[1, 2]], [[1, 2, 3, 4]], ["8"], [8.0]):
        assert {pointer.split("/")[1] for pointer, _ in _refused(sizes=sizes)} == {"sizes"}


def test_params_written_out_are_valid_again():
    for params in ({"sizes": [8, [8, 8, 8 + 1]], "mode": "dispatch"}, _int8(n=8)):
        written_out = _params(**params).model_dump(mode="json")
        assert _params(**written_out).model_dump(mode="json") == written_out


def test_the_estimate_adds_up_the_sizes(device):
    both = estimate(_params(sizes=[1024, 2048]), device)
    alone = [estimate(_params(n=n), device) for n in (1024, 2048)]
    assert both.start_s == pytest.approx(sum(each.start_s for each in alone) - START_S)
    assert max(each.memory_bytes for each in alone) < both.memory_bytes < sum(each.memory_bytes for each in alone)


def test_the_linter_looks_at_every_size():
    assert [raised.code for raised in lint(_params(sizes=[1024, 2048]))] == ["POW2_ONLY"]
    assert lint(_params(sizes=[1024, 2000])) == []
    assert [raised.code for raised in lint(_params(sizes=[1024, 100]))] == ["CACHE_RESIDENT"]


@pytest.mark.parametrize(("k", "observed"), [(1500, "int8"), (1501, "int8"), (64, None)])
def test_integers_are_exact_and_differ_from_float32_sums(context, k, observed):
    found = _verified(context(), **_int8(m=12, k=k, n=20))
    assert found.warnings == []
    assert (found.precision.requested, found.precision.observed, found.precision.rel_error) == ("int8", observed, 0.0)
    assert (found.details["sums"], found.details["rows_compared"]) == ("int32", 8)


@pytest.mark.parametrize(("m", "n"), [(1, 20), (12, 1), (2, 2), (1, 1)])
def test_a_single_row_or_column_of_integers_is_not_one_number_throughout(context, m, n):
    found = _verified(context(), **_int8(m=m, k=1500, n=n))
    assert found.warnings == []
    assert found.precision.observed == "int8"


def _plus_one_in_one_place(product):
    return product + np.eye(*product.shape, dtype=np.int32) * (np.arange(product.shape[1]) == 5).astype(np.int32)


def _as_float32(product):
    import tensorflow as tf

    return tf.cast(tf.cast(product, tf.float32), tf.int32)


@pytest.mark.parametrize("spoil", [_plus_one_in_one_place, _as_float32])
def test_an_integer_product_wrong_in_one_place_by_one_is_found(tensorflow, context, spoil):
    class Wrong(StartedTensorFlow):
        def integer_matmul(self, a, b):
            return spoil(super().integer_matmul(a, b))

    found = _verified(context(Wrong(tensorflow)), **_int8(m=12, k=1500, n=20))
    assert [raised.code for raised in found.warnings] == ["RESULT_INCORRECT"]
    assert found.precision.observed is None


def test_integer_operations_are_counted_as_such():
    assert [spec.unit for spec in MATMUL.metrics_for(_params(**_int8(n=8)))] == ["OP/s", "s"]
    assert [spec.unit for spec in MATMUL.metrics_for(_params(n=8))] == ["FLOP/s", "s"]
    names = [spec.name for spec in MATMUL.metrics]
    assert [spec.name for spec in MATMUL.metrics_for(_params(**_int8(n=8)))] == names


def test_a_device_without_tf32_refuses_it(device, context):
    tf32 = _params(n=64, dtype="tf32")
    ampere, turing, unknown = (
        device.model_copy(update={"kind": "gpu", "isa": isa}) for isa in (["sm_80"], ["sm_75"], [])
    )
    assert [len(MATMUL.refuses(tf32, on)) for on in (device, turing, ampere, unknown)] == [1, 1, 0, 0]
    assert MATMUL.refuses(_params(n=64), device) == []
    with pytest.raises(RunFailed, match="test has no tf32") as failed:
        MATMUL.build(tf32, context())
    assert (failed.value.failure_class, failed.value.reason) == ("unsupported", "dtype_unsupported")


@pytest.mark.parametrize(("dtype", "allowed"), [("tf32", True), ("float32", False)])
def test_float32_uses_tf32_only_on_request(tensorflow, context, device, dtype, allowed):
    import dataclasses

    import tensorflow as tf

    tensorflow.allow_tf32(not allowed)
    on_gpu = dataclasses.replace(context(), device=device.model_copy(update={"kind": "gpu"}))
    MATMUL.build(_params(n=8, dtype=dtype), on_gpu)
    assert tf.config.experimental.tensor_float_32_execution_enabled() is allowed
    tensorflow.allow_tf32(True)
