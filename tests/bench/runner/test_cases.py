import json
import os
import subprocess
import sys
import tempfile
from itertools import groupby
from typing import Any

import pytest

from dyno.bench.measure.assemble import assemble
from dyno.bench.registry import resolve
from dyno.models.device import Device
from dyno.models.runner_protocol import FRAME, DoneFrame, ProgressFrame, RunRequest
from dyno.models.spec import Measure, Spec

CORES = sorted(os.sched_getaffinity(0))
DEVICE = Device(id="cpu:0", kind="cpu", model="test", host="here", cores=CORES, memory_bytes=8 << 30)
MEASURE = Measure.model_validate({"processes": 1, "min_samples": 3, "min_s": 0, "max_s": 2, "cold_start": True})
PARAMS = {"sizes": [32, [8, 16, 24]], "mode": "dispatch", "repeats": 5}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A job of two sizes in a spawned runner, and its progress: a cold start with a filled cache and without
    TensorFlow's fast kernels."""
    cache = tmp_path_factory.mktemp("cache")
    (cache / "module").write_bytes(b"compiled before")
    env = os.environ | {
        "TF_ENABLE_ONEDNN_OPTS": "0",
        "TF_XLA_FLAGS": f"--tf_xla_persistent_cache_directory={cache}",
    }
    spec = Spec(workload="matmul", params=PARAMS, measure=MEASURE)
    request = RunRequest(job="job_1", spec=spec, run=0, runs=1, device=DEVICE, process_start="spawned")
    with tempfile.TemporaryFile() as requests, tempfile.TemporaryFile() as frames_file:
        requests.write(request.model_dump_json().encode())
        requests.seek(0)
        command = [sys.executable, "-P", "-m", "dyno.bench.runner"]
        command += ["--request-fd", str(requests.fileno()), "--frames-fd", str(frames_file.fileno())]
        subprocess.run(
            command,
            env=env,
            pass_fds=(requests.fileno(), frames_file.fileno()),
            capture_output=True,
            check=True,
            timeout=120,
        )
        frames_file.seek(0)
        frames = [FRAME.validate_json(line) for line in frames_file]
    assert isinstance(frames[-1], DoneFrame), frames[-1]
    result = assemble("job_1", resolve(spec), DEVICE, [frames[-1].record])
    return result, [frame for frame in frames if isinstance(frame, ProgressFrame)]


def test_a_job_of_two_sizes_has_results_for_both(ran):
    result, _ = ran
    metrics = {metric.name: metric for metric in result.metrics}
    assert metrics["throughput"].value == metrics["throughput_32x32x32"].value
    further = metrics["execution_time_8x16x24"]
    assert 0 < further.value < 0.1
    table: Any = result.details["cases"]
    assert [case["flops"] for case in table.values()] == [2 * 32**3 * 5, 2 * 8 * 16 * 24 * 5]
    assert json.loads(result.model_dump_json())["details"]["sizes"].keys() == table.keys()


@pytest.mark.provokes("WARM_CACHE", "SLOW_PATH")
def test_a_filled_cache_and_disabled_kernels_raise_warnings(ran):
    evidence = {raised.code: raised.evidence for raised in ran[0].warnings}
    assert evidence["WARM_CACHE"]["caches"] == ["TF_XLA_FLAGS: --tf_xla_persistent_cache_directory"]
    assert evidence["SLOW_PATH"]["reasons"] == ["TF_ENABLE_ONEDNN_OPTS has 0"]


def test_progress_does_not_return_to_warm_up_for_the_second_case(ran):
    _, progress = ran
    phases = [phase for phase, _ in groupby(frame.phase for frame in progress)]  # a slow sample is reported again
    assert phases[-2:] == ["sampling", "verify"]
    assert "warmup" not in phases[phases.index("sampling") :]


def test_the_time_of_the_second_size_is_a_phase_of_its_own(ran):
    phases = ran[0].phases
    # three samples of 0.1 s each, or less if other tests slowed the warm-up down
    assert 0.1 <= phases.cases_s < MEASURE.max_s * 2
    assert phases.steady_s >= 0.1
