"""The `Device` document that a worker publishes and the API returns, and the selectors that a device matches."""

import re
from typing import Literal

from dyno.models.job import Stored
from dyno.models.spec import DeviceKind, DeviceSelector


class PeakFigure(Stored):
    """A device's peak for one dtype. If `value` is null, `reason` says why. `source` names the data sheet."""

    value: float | None
    unit: str = "FLOP/s"
    provenance: Literal["datasheet", "measured clock", "measured here"] | None = None
    source: str | None = None
    reason: str | None = None


class Device(Stored):
    """A compute device on one host. `id` is "cpu:0-1" (cores as a cpulist), "gpu:0", "gpu:0:1" (a slice), …"""

    id: str
    kind: DeviceKind
    model: str
    name: str | None = None  # a readable name, if `model` is the identity of a processor
    host: str
    cores: list[int] = []  # host cores that a runner is pinned to
    memory_bytes: int
    last_cache_bytes: int | None = None
    isa: list[str] = []
    peak: dict[str, PeakFigure] = {}  # by dtype, of all units together
    memory_bandwidth: PeakFigure | None = None  # bytes/s, of all units together
    frameworks: dict[str, str] = {}  # installed: name -> version
    emulated: bool = False
    uuids: list[str] = []  # of the GPUs, or of the slice (MIG): runners see no other devices
    units: int = 1  # maximum replicas: cores of a TPU board, GPUs, or virtual devices on a CPU
    started_with: Literal["fork", "spawn"] | None = None
    started_with_reason: str | None = None

    @property
    def full_id(self) -> str:
        """The id with its host, unique in a fleet: "cpu:0-1@host"."""
        return f"{self.id}@{self.host}"

    @property
    def called(self) -> str:
        """The device's readable name."""
        return self.name or self.model

    @property
    def driven_as(self) -> DeviceKind:
        """The kind of device that the framework starts: "cpu" for an emulated device, which consists of CPU cores."""
        return "cpu" if self.emulated else self.kind


ANY = "any"


def model_slug(model: str) -> str:
    """A device model as part of a queue's name: its letters and digits in lower case, joined by dashes."""
    return re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")


def device_class(selector: DeviceSelector) -> str:
    """The class of devices that may run the job: "any", "cpu", "cpu/<model-slug>", "cpu:0-1", "cpu:0-1@host".

    The most specific field wins: id, then model, then kind. A model without a kind gives "any/<model-slug>".
    """
    if selector.id is not None:
        return selector.id
    kind = selector.kind or ANY
    return f"{kind}/{model_slug(selector.model)}" if selector.model is not None else kind


def fits(selector: DeviceSelector, device: Device) -> bool:
    """Whether the selector matches the device. Frameworks aren't checked."""
    return device_class(selector) in device_classes(device)


def device_classes(device: Device) -> list[str]:
    """The device's classes, most specific first. Emulated devices leave out "any": their results would be untrusted."""
    slug = model_slug(device.model)
    particular = [device.full_id, device.id, f"{device.kind}/{slug}", f"{ANY}/{slug}", device.kind]
    return particular if device.emulated else [*particular, ANY]
