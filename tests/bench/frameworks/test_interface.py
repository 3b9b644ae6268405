"""Runs the cases in `cases/` on the frameworks other than TensorFlow, each in a separate process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dyno.bench.devices.discovery import installed_frameworks
from tests.quick_xla import QUICK_XLA

CASES = Path(__file__).parent / "cases"


@pytest.mark.verify
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("framework", "replicas"), [("jax", 2), ("torch", 1)])
def test_it_fulfils_the_interface(framework, replicas):
    if framework not in installed_frameworks():
        pytest.skip(f"{framework} is not installed here")
    # What runs on Keras' default device, instead of that of `start`, has no values.
    asked = {"CASES_FRAMEWORK": framework, "CASES_REPLICAS": str(replicas), "KERAS_TORCH_DEVICE": "meta"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)]
    ended = subprocess.run(command, env=os.environ | QUICK_XLA | asked, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-8000:] + ended.stderr[-2000:]
