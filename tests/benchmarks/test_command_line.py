"""Wrong settings, and names of no benchmark: told before anything is measured."""

import os
import subprocess
import sys

import pytest


def ended(*words, **env):
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, env=os.environ | env, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("name", ["", ".reproduce", ".workloads"])
def test_a_wrong_setting_is_one_line_and_exit_code_2(name):
    done = ended(f"benchmarks{name}", "begin", DYNO_PORT="many")  # which is the name of none, so that none begins
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert "DYNO_PORT" in done.stderr


def test_a_name_of_no_benchmark_is_one_line_that_lists_them():
    done = ended("benchmarks", "begin", "start")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert "begin; there are start," in done.stderr
