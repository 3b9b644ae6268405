"""CPU_QUOTA in a real control group, of version 1 or 2, if this machine allows creating one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from dyno.bench.devices.cpu import CGROUP_MOUNT, own_cgroups
from tests.running import codes
from tests.waiting import eventually

PERIOD_US = 100_000
IN_THE_GROUP = """
import json, sys
with open(sys.argv[1], "w") as door:
    door.write("0")
from dyno.bench.devices.environment import environment
print(json.dumps(environment()))
"""


@pytest.fixture
def group():
    """A control group of half a core, below this process's own or at the mount."""
    bases = [*(own for _, own in own_cgroups("cpu")), CGROUP_MOUNT / "cpu", CGROUP_MOUNT]
    folder = next((made for base in bases if (made := _made(base)) is not None), None)
    if folder is None:
        pytest.skip("no control group with a quota can be made here")
    yield folder
    eventually(lambda: _removed(folder), what="the group is empty")


def _made(base):
    folder = base / f"dyno-quota-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        return None
    try:
        _limit(folder, PERIOD_US // 2)
        if not os.access(folder / "cgroup.procs", os.W_OK):
            raise FileNotFoundError(folder)
    except OSError:
        folder.rmdir()
        return None
    return folder


def _limit(folder, quota_us):
    """Raises OSError if the folder has no such limit."""
    if (folder / "cpu.max").exists():
        (folder / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        return
    for name, value in (("cpu.cfs_period_us", PERIOD_US), ("cpu.cfs_quota_us", quota_us)):
        with (folder / name).open("r+") as file:
            file.write(str(value))


def _removed(folder):
    try:
        folder.rmdir()
    except OSError:
        return not folder.exists()
    return True


def _seen_in(group):
    command = [sys.executable, "-P", "-c", IN_THE_GROUP, str(group / "cgroup.procs")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.provokes("CPU_QUOTA")
@pytest.mark.silent("CPU_QUOTA")
@pytest.mark.parametrize(("quota_us", "raises"), [(PERIOD_US // 2, True), (8 * PERIOD_US, False)])
def test_a_run_in_a_group_with_a_quota_below_its_cores_raises_cpu_quota(
    group, result, record, device, quota_us, raises
):
    _limit(group, quota_us)
    environment = _seen_in(group)
    quota = environment["container"]["cpu_cores"]
    if not raises and quota < len(device.cores):
        pytest.skip("a group above allows less than two cores")
    found = result([record([1.0] * 20, environment=environment)])
    assert ("CPU_QUOTA" in codes(found)) is raises
    if raises:
        assert quota == 0.5
