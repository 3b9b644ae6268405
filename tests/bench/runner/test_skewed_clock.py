"""CLOCK_SKEW from a wall clock that really jumps, in the middle of a sample."""

import os
import subprocess
import sys

import pytest

from chaos.injectors import JumpingClock
from tests.waiting import eventually

# Jumps an hour, if at all, in a sample after warm-up, which ends within half of `max_s`.
SAMPLE = """
import os, struct, sys, time
from dyno.models.device import Device
from dyno.bench.devices.sensors import NoSensors
from dyno.bench.runner.case_sampling import take_samples
from dyno.bench.runner.frame_writer import FrameWriter
from dyno.bench.measure.stopping_rule import StoppingRule

MAX_S = 0.3
jumps, began_s = sys.argv[1] == "jumps", time.monotonic()

def execute(count):
    global jumps
    if jumps and time.monotonic() - began_s > 0.7 * MAX_S:
        jumps = False
        with open(os.environ["JUMPING_CLOCK"], "r+b") as clock:
            clock.write(struct.pack("=q", 3600))
    time.sleep(0.001 * count)

rule = StoppingRule(min_s=0.0, max_s=MAX_S, target_rel_ci=1e-9, min_sample_s=MAX_S / 20)
device = Device(id="cpu:0", kind="cpu", model="test", host="here", memory_bytes=8 << 30)
with open(os.devnull, "wb") as devnull:
    taken = take_samples(execute, rule, device, NoSensors("none here"), FrameWriter(devnull.fileno()))
print(jumps, *(raised.code for raised in taken.disturbances if raised.code == "CLOCK_SKEW"))
"""


@pytest.mark.provokes("CLOCK_SKEW")
@pytest.mark.silent("CLOCK_SKEW")
@pytest.mark.parametrize(("does", "printed"), [("jumps", "False CLOCK_SKEW"), ("stays", "False")])
def test_only_a_wall_clock_that_jumps_in_a_sample_raises_clock_skew(does, printed, tmp_path):
    clock = JumpingClock(tmp_path)
    if clock.left_out is not None:
        pytest.skip(clock.left_out)
    command, env = [sys.executable, "-P", "-c", SAMPLE, does], os.environ | clock.env

    def sampled():
        """None if the clock was to jump but a busy host left no time for it."""
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60)
        return None if done.stdout.startswith("True") else done.stdout.strip()

    assert eventually(sampled, what="the clock jumps in a sample") == printed
