"""What a device and its host are. No arithmetic: topology, caches, instructions, memory, GPUs, TPUs, frameworks.

All of it is in the result's `details` and, for a person, in the artifact `device.txt`. What is sampled is the time
that reading it takes (/proc, /sys and NVML; the frameworks are asked once, in the first run).
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from dyno.devices.cpu_speed import measure_clock_hz
from dyno.devices.device import Device
from dyno.devices.discovery import installed_frameworks
from dyno.frameworks.seen import seen_in_a_process_of_its_own
from dyno.measure.warnings import OUTPUT_CODES
from dyno.models.spec import FrameworkName
from dyno.workloads._articles import LABORATORY, TPU_V2
from dyno.workloads._cost import runtime_bytes
from dyno.workloads._device_facts import Facts, host_facts, listing
from dyno.workloads.contract import BuildContext, Built, Estimate, MetricSpec, Params, Verification, Workload

LISTING = "device.txt"
_FACTS = "what the system tells of its devices is taken for true: there is nothing to hold it against"
_ASKING_S = 15.0  # another framework, in a process of its own


class DeviceInfoParams(Params):
    ask_frameworks: bool = Field(True, description="Ask each other installed framework too; each takes seconds")


class _DeviceInfo:
    """One execution reads everything about the host once."""

    work = 1.0

    def __init__(self, params: DeviceInfoParams, context: BuildContext) -> None:
        self._params, self._context = params, context
        self._facts: Facts = {}
        self._frameworks: Facts = {}

    def compile(self) -> None:
        """Nothing."""

    def execute(self, count: int) -> None:
        for _ in range(count):
            self._facts = host_facts()

    def complete(self, compile_s: float, first_execution_s: float) -> None:
        """Ask the frameworks, and leave the listing behind."""
        own, installed = self._context.framework, installed_frameworks()
        for place, (name, version) in enumerate(installed.items()):
            self._context.report("asking", place, len(installed), "frameworks")
            if name == own.name:
                self._frameworks[name] = {"version": version, "devices": own.seen()}
            elif self._params.ask_frameworks:
                self._frameworks[name] = {"version": version, **seen_in_a_process_of_its_own(name)}
        if self._context.artifacts is not None:
            (self._context.artifacts / LISTING).write_text(listing(self._all()))

    def verify(self) -> Verification:
        facts = self._all()
        return Verification(
            unchecked=dict.fromkeys(OUTPUT_CODES, _FACTS),
            details=facts | {"listing": listing(facts).splitlines()},
        )

    def _all(self) -> Facts:
        device = self._context.device
        cores = device.cores if device else []
        measured = {"measured_hz": measure_clock_hz(cores[0]) if cores else None}
        found: dict[str, Any] = {**self._facts, "cpu": self._facts["cpu"] | measured}
        return found | ({"frameworks": self._frameworks} if self._frameworks else {})


def flops(params: DeviceInfoParams) -> float:
    """None at all."""
    return 0.0


def estimate(
    params: DeviceInfoParams, device: Device, replicas: int = 1, framework: FrameworkName = "tensorflow"
) -> Estimate:
    """The default sampling budget, and the frameworks to be asked."""
    asked = max(0, len(device.frameworks) - 1) if params.ask_frameworks else 0
    return Estimate(4.0, runtime_bytes(device), asked * _ASKING_S)


def build(params: DeviceInfoParams, context: BuildContext) -> Built:
    return _DeviceInfo(params, context)


_CORES = "Eight cores are one board of four chips; two cores share each chip's memory."

WORKLOAD = Workload(
    name="device_info",
    description="What the device is: topology, caches, instructions, memory, driver, and what each framework sees",
    params=DeviceInfoParams,
    metrics=(MetricSpec("discovery_time", "s", "lower", "Time to read all that the system tells of its devices"),),
    flops=flops,
    estimate=estimate,
    build=build,
    references=(LABORATORY.figure(TPU_V2, "cores", 8.0, "cores", _CORES),),
    executions=lambda params: "everything about the host's devices read once",
)
