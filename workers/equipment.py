"""What a supervisor is given, and shares with its attempts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dyno.devices.device import Device
from dyno.logging import Tracer
from dyno.settings import Settings
from dyno.store.leases import Leases
from dyno.workloads.contract import Workload
from workers.launcher import Launcher
from workers.stop import StopSwitch


@dataclass(frozen=True)
class WorkerContext:
    """`clock` is monotonic, in seconds; the deadlines of `stop` are on it.

    `gone` looks whether the device is still there: why it isn't, or None. It may take as long as a driver does.
    """

    device: Device
    leases: Leases
    launcher: Launcher
    settings: Settings
    workloads: Mapping[str, Workload]
    stop: StopSwitch = field(default_factory=StopSwitch)
    clock: Callable[[], float] = time.monotonic
    gone: Callable[[], str | None] = lambda: None
    traces: Tracer = field(default_factory=Tracer)
