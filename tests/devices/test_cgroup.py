"""Container limits, read from trees as kernels lay them out."""

from __future__ import annotations

from pathlib import Path

from dyno.devices.cgroup import CgroupLimits, cgroup_limits


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


def test_version_2_takes_the_tightest_limit_of_the_group_and_its_ancestors(tmp_path: Path) -> None:
    mount = write(
        tmp_path / "cgroup",
        {
            "cpu.max": "max 100000",
            "job/cpu.max": "150000 100000",
            "job/memory.max": "1073741824",
            "job/inner/cpu.max": "max 100000",
            "job/inner/memory.max": "max",
        },
    )
    write(tmp_path, {"membership": "0::/job/inner"})
    assert cgroup_limits(mount, tmp_path / "membership") == CgroupLimits(1.5, 2**30)


def test_version_1_reads_quota_period_and_bytes(tmp_path: Path) -> None:
    mount = write(
        tmp_path / "cgroup",
        {
            "cpu,cpuacct/box/cpu.cfs_quota_us": "50000",
            "cpu,cpuacct/box/cpu.cfs_period_us": "100000",
            "cpu,cpuacct/cpu.cfs_quota_us": "-1",
            "memory/box/memory.limit_in_bytes": "536870912",
            "memory/memory.limit_in_bytes": "9223372036854771712",
        },
    )
    write(tmp_path, {"membership": "4:memory:/box\n2:cpu,cpuacct:/box"})
    assert cgroup_limits(mount, tmp_path / "membership") == CgroupLimits(0.5, 2**29)


def test_no_files_and_no_membership_mean_no_limits(tmp_path: Path) -> None:
    assert cgroup_limits(tmp_path, tmp_path / "none") == CgroupLimits(None, None)


def test_this_machine_answers_without_an_error() -> None:
    limits = cgroup_limits()
    assert limits.cpu_cores is None or limits.cpu_cores > 0
    assert limits.memory_bytes is None or limits.memory_bytes > 0
