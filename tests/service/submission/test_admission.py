import json
import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pytest

from dyno.bench.registry import registry
from dyno.errors import DoesNotFit, ExceedsTimeout, NoDeviceFits, Unsupported
from dyno.models.device import PeakFigure
from dyno.models.inventory import DeviceStatus
from dyno.models.spec import FrameworkName, Spec
from dyno.store.placement import profile
from service import validation
from service.admission import _EXTRAS, _NOT_ADMITTED, ESTIMATE_FACTOR, RecentAdmissions, admit, expected_s
from service.validation import validate_job

WEATHER = {"workload": "weather_gru", "params": {}}


def request(**spec):
    document, faults = validation.parse_json(json.dumps({"workload": "matmul", "params": {"n": 64}} | spec).encode())
    return validate_job(document, faults, registry())


def cordoned(device):
    known = {"state": "idle", "cordoned": True, "queue_length": 0, "worker": "w", "last_heartbeat": datetime.now(UTC)}
    return DeviceStatus.model_validate(device.model_dump() | known)


def test_a_job_that_fits_is_estimated_on_a_device_that_fits_it(device):
    admission = admit(request(device="cpu"), [device(), device(id="gpu:0", kind="gpu")])
    assert admission.estimate.device == "cpu:0-1@here"
    assert 0 < admission.estimate.time_s < 600
    assert 0 < admission.estimate.memory_bytes < device().memory_bytes


def test_a_request_that_no_fitting_device_supports_names_the_param(device):
    asked = request(params={"n": 64, "dtype": "tf32"})
    able = device(id="gpu:0", kind="gpu", isa=["sm_90"])
    with pytest.raises(Unsupported) as refused:
        admit(asked, [device()])
    assert [error.pointer for error in refused.value.errors] == ["/params/dtype"]
    assert (found := admit(asked, [device(), able]).estimate) is not None
    assert found.device == able.full_id


@pytest.mark.parametrize(
    ("little", "much"),
    [({"min_s": 2, "processes": 10}, {"min_s": 2, "processes": 100}), ({"budget_s": 30}, {"budget_s": 100})],
)
def test_more_runs_and_a_larger_budget_take_longer(device, little, much):
    few, many = (admit(request(measure=measure), [device()]).estimate for measure in (little, much))
    assert many.time_s > 2 * few.time_s


def test_without_a_fitting_device_the_refusal_lists_the_devices(device):
    with pytest.raises(NoDeviceFits, match="cpu:0-1@here"):
        admit(request(device="gpu"), [device()])
    with pytest.raises(NoDeviceFits, match="none"):
        admit(request(), [])


@pytest.mark.provokes("NO_DEVICE_YET")
@pytest.mark.silent("NO_DEVICE_YET")
def test_a_job_that_fits_only_cordoned_devices_is_refused_or_waits(device):
    shut = cordoned(device())
    with pytest.raises(NoDeviceFits, match=f'are cordoned: {shut.full_id}; set "queue_if_absent": true'):
        admit(request(), [shut])
    admission = admit(request(queue_if_absent=True), [shut])
    assert (admission.estimate, admission.fits) == (None, {profile(shut): True})
    assert admission.warnings[-1].code == "NO_DEVICE_YET"
    message = admission.warnings[-1].message
    assert message.endswith(f"are cordoned: {shut.full_id}"), "without advice that the spec already follows"
    assert message.startswith('no live device of the queue "any" can run the job'), "for it fits one"
    free = admit(request(queue_if_absent=True), [device()])
    assert "NO_DEVICE_YET" not in {warning.code for warning in free.warnings}


def test_a_job_that_waits_for_a_larger_device_says_what_the_others_lack(device):
    small = device(memory_bytes=2**30)
    huge = admit(request(params={"n": 65536}, queue_if_absent=True), [small])
    assert (huge.estimate, huge.fits) == (None, {profile(small): False})
    assert (huge.warnings[-1].code, huge.warnings[-1].evidence) == ("NO_DEVICE_YET", {"queue": "any"})
    sequence = admit(request(workload="weather_gru", params={}, queue_if_absent=True), [small])
    assert sequence.warnings[-1].message.count("the job needs about") == 1, "though several params would lessen them"
    assert f"the largest fitting device, {small.full_id}, has 1.074 GB" in huge.warnings[-1].message


def test_the_record_has_the_devices_that_can_run_the_job(device):
    asked = request(params={"n": 8192}, device="cpu", framework="jax")
    with_jax = {"frameworks": {"tensorflow": "2.21", "jax": "0.10"}}
    large, small = device(**with_jax), device(id="cpu:2", memory_bytes=2**20, **with_jax)
    others = [device(id="cpu:3"), device(id="gpu:0", kind="gpu", **with_jax)]
    assert admit(asked, [small, large, *others]).fits == {profile(large): True, profile(small): False}


def test_a_missing_framework_is_refused_with_the_available_ones_and_the_extra(device):
    elsewhere = device(id="gpu:0", kind="gpu", frameworks={"tensorflow": "2.21", "jax": "0.10"})
    with pytest.raises(Unsupported, match=r"has jax installed; available: tensorflow\. .*\.\[jax\]") as caught:
        admit(request(framework="jax", device="cpu"), [device(), elsewhere])
    assert [(e.pointer, e.code) for e in caught.value.errors] == [("/framework", "framework-missing")]


def test_the_named_extra_exists():
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert _EXTRAS.keys() == set(get_args(FrameworkName))
    for framework, extra in _EXTRAS.items():
        assert any(line.startswith(framework) for line in project["optional-dependencies"][extra])


@pytest.mark.parametrize(("spec", "queue"), [({"device": "gpu"}, "gpu"), ({"framework": "jax"}, "any+jax")])
def test_a_job_that_may_wait_is_admitted_with_a_warning(device, spec, queue):
    admission = admit(request(queue_if_absent=True, **spec), [device()])
    assert admission.estimate is None
    assert (admission.warnings[-1].code, admission.warnings[-1].evidence) == ("NO_DEVICE_YET", {"queue": queue})


def test_a_job_is_estimated_for_a_device_that_takes_it(device):
    fast = {"peak": {"float32": PeakFigure(value=1e15, provenance="measured here")}}
    both = device(id="cpu:1", frameworks={"tensorflow": "2.21", "jax": "0.10"})
    for spec, *devices in (
        ({}, cordoned(device(id="cpu:0", **fast)), device(id="cpu:1")),
        ({"framework": "jax"}, device(id="cpu:0", **fast), both),
        ({"params": {"n": 8192}}, device(id="cpu:0", memory_bytes=2**20), device(id="cpu:1")),
    ):
        assert admit(request(**spec), devices).estimate.device == "cpu:1@here"


def test_too_little_memory_is_refused_with_both_figures_and_the_field_to_change(device):
    small, large = device(id="cpu:0", memory_bytes=2**30), device(id="cpu:1", memory_bytes=2**31)
    huge = request(params={"n": 65536})
    needed = registry()["matmul"].estimate(huge.params, large).memory_bytes
    with pytest.raises(DoesNotFit) as caught:
        admit(huge, [small, large])
    assert [e.pointer for e in caught.value.errors] == ["/params/n"]
    assert f"{needed / 1e9:.4g} GB" in caught.value.errors[0].detail
    assert "2.147 GB" in caught.value.errors[0].detail


def test_a_frameworks_memory_decides_whether_a_training_fits(device):
    host = device(memory_bytes=8 * 2**30, frameworks={"tensorflow": "2.21", "jax": "0.10"})
    assert admit(request(**WEATHER), [host]).estimate is not None
    with pytest.raises(DoesNotFit):
        admit(request(**WEATHER, framework="jax"), [host])


def test_too_little_time_is_refused_with_both_figures_and_the_fields_to_change(device):
    with pytest.raises(ExceedsTimeout, match=r"timeout_s is 1\b") as caught:
        admit(request(params={"n": 8192}, timeout_s=1), [device()])
    pointers = [e.pointer for e in caught.value.errors]
    assert pointers == ["/timeout_s", "/params/n"]  # five of these runs take longer, however small the budget is
    with pytest.raises(ExceedsTimeout) as caught:
        admit(request(params={"n": 64}, measure={"budget_s": 100}, timeout_s=1), [device()])
    assert [e.pointer for e in caught.value.errors] == ["/timeout_s", "/params/n", "/measure/budget_s"]


def test_samples_longer_than_the_timeout_are_refused_with_the_figures(device):
    asked = {"processes": 5, "min_s": 3600, "max_s": 3600}
    with pytest.raises(ExceedsTimeout, match=r"about 1.8e\+04 s .*timeout_s is 60;") as caught:
        admit(request(measure=asked, timeout_s=60), [device()])
    pointers = [e.pointer for e in caught.value.errors]
    assert {"/timeout_s", "/measure/processes", "/measure/min_s"} <= set(pointers)
    with pytest.raises(ExceedsTimeout):  # no tolerance here: these seconds are certain
        admit(request(measure=asked | {"min_s": 13}, timeout_s=60), [device()])
    admit(request(measure=asked | {"min_s": 11}, timeout_s=60), [device()])


@pytest.mark.provokes("TIMEOUT_TIGHT")
@pytest.mark.silent("TIMEOUT_TIGHT")
def test_a_timeout_within_the_error_of_the_estimate_is_a_warning(device):
    estimate = admit(request(), [device()]).estimate
    tight = admit(request(timeout_s=estimate.time_s * 1.5 / ESTIMATE_FACTOR), [device()])
    assert "TIMEOUT_TIGHT" in {warning.code for warning in tight.warnings}
    enough = admit(request(timeout_s=estimate.time_s * 1.01), [device()])
    assert "TIMEOUT_TIGHT" not in {warning.code for warning in enough.warnings}


def test_the_linters_warnings_are_included(device):
    asked = request(params={"n": 4096})
    expected = [warning.code for warning in asked.workload.lint(asked.params)]
    assert "POW2_ONLY" in expected
    assert [warning.code for warning in admit(asked, [device()]).warnings] == expected


def test_more_replicas_than_a_fitting_device_has_are_refused_with_what_it_has(device):
    asked = request(workload="mnist_cnn", params={}, replicas=2, device="gpu")
    one, two = device(id="gpu:0", kind="gpu", units=1), device(id="gpu:0-1", kind="gpu", units=2)
    with pytest.raises(Unsupported, match=r"gpu:0@here takes up to 1\b") as caught:
        admit(asked, [one])
    assert [(e.pointer, e.code) for e in caught.value.errors] == [("/replicas", "too-many-replicas")]
    estimate = admit(asked, [one, two]).estimate
    assert estimate.device == "gpu:0-1@here"


def test_linter_and_estimate_get_the_replicas_and_the_device(device):
    one, eight = (
        admit(request(workload="imdb_lstm", params={"batch_size": 96}, replicas=n), [device(kind="tpu", units=8)])
        for n in (1, 8)
    )
    codes = [[warning.code for warning in admission.warnings] for admission in (one, eight)]
    assert ["BATCH_UNEVEN" in each for each in codes] == [False, True]
    assert all("WIDTH_UNEVEN" in each for each in codes)
    assert eight.estimate.memory_bytes < one.estimate.memory_bytes


OTHER_VALUES = {
    "seed": 7,
    "labels": {"build": "7"},
    "webhook": "https://hooks.example.org/done",
    "priority": "low",
    "expires_in_s": 3600,
    "baseline": "main",
    "baseline_allow": ["hardware"],
}


def test_admission_is_reused_for_a_spec_that_differs_in_fields_it_doesnt_depend_on(device):
    recent, devices = RecentAdmissions(), [device()]
    assert OTHER_VALUES.keys() == _NOT_ADMITTED
    first = recent.admit(request(timeout_s=15), devices)
    for name, value in OTHER_VALUES.items():
        asked = request(timeout_s=15, **{name: value})
        assert recent.admit(asked, devices) is first
        assert admit(asked, devices) == first


@pytest.mark.parametrize("other", [{"params": {"n": 65}}, {"timeout_s": 3600}, {"device": "cpu:0-1"}])
def test_admission_is_made_for_each_other_spec(device, other):
    recent, devices = RecentAdmissions(), [device()]
    first = recent.admit(request(), devices)
    assert recent.admit(request(**other), devices) is not first
    assert recent.admit(request(**other), devices) == admit(request(**other), devices)


def test_admission_is_made_again_for_other_devices(device):
    recent = RecentAdmissions()
    assert recent.admit(request(device="cpu"), [device()]).estimate is not None
    for _ in range(2):
        with pytest.raises(NoDeviceFits):
            recent.admit(request(device="cpu"), [])
    assert recent.admit(request(device="cpu"), [device()]).estimate is not None


@pytest.mark.parametrize("spec", [{"workload": "matmul_of_tomorrow"}, {"workload": "matmul", "params": {"new": 1}}])
def test_jobs_of_another_version_have_no_estimated_duration(device, spec):
    assert expected_s(registry(), Spec.model_validate(spec), device()) is None


def test_a_bug_in_an_estimate_raises(device):
    def estimate(*_):
        raise KeyError("a bug")

    with pytest.raises(KeyError, match="a bug"):
        expected_s({"matmul": replace(registry()["matmul"], estimate=estimate)}, Spec(workload="matmul"), device())
