"""How much memory a run took: the peak of this process alone."""

from __future__ import annotations

from pathlib import Path

from dyno.frameworks.contract import Framework
from dyno.models.result import Memory

_RESET_PEAK = "5"  # proc(5), /proc/pid/clear_refs: VmHWM starts again from what is resident now


def reset_host_peak() -> None:
    """Forget the peak so far: a forked runner inherits its zygote's. Where the kernel refuses, it stays included."""
    try:
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    except OSError:
        return


def host_peak_bytes(status: Path = Path("/proc/self/status")) -> int | None:
    """The most resident memory since the start or the last reset (VmHWM); None where the kernel doesn't say."""
    try:
        lines = status.read_text().splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith("VmHWM:")]
    return int(found[0][1]) * 1024 if found else None


def memory(framework: Framework, kind: str) -> Memory:
    """Host and device peak of this process, with the reason where there is no device figure."""
    if kind == "cpu":
        reason = "a CPU has no memory of its own: host_peak_bytes is all of it"
        return Memory(host_peak_bytes=host_peak_bytes(), reason=reason)
    peak_bytes = framework.device_peak_bytes(kind)
    reason_absent = None if peak_bytes is not None else f"{framework.name} doesn't count the memory of a {kind}"
    return Memory(host_peak_bytes=host_peak_bytes(), device_peak_bytes=peak_bytes, reason=reason_absent)
