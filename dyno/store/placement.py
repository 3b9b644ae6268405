"""Placement: the queue that a job waits in, the queues that a device serves, and whether a job fits a device.

Queues are routing classes: a job waits in exactly one, and a device serves every queue that it fits. A queue is named
by a device class and a framework, so a worker without JAX never claims a JAX job. The queues of the default framework
have the device class alone as their name, as they had before there was a second framework: jobs that wait in them are
found after an upgrade.

Whether a job fits is a question for its workload, which the store doesn't import. The API answers it for all live
devices when it admits a job, and the record keeps one answer per device profile. A claim asks the worker for any
other profile: a device that came later, a job queued before any device, a record of an older version.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata

from pydantic_core import to_json

from dyno.devices.device import Device
from dyno.models.spec import DeviceSelector, FrameworkName, Spec
from dyno.store.records import read_spec

ANY = "any"
UNMARKED_FRAMEWORK: FrameworkName = "tensorflow"  # the framework that a queue's name leaves out


def model_slug(model: str) -> str:
    """A device model as part of a queue's name: lower case, anything but letters and digits becomes one dash."""
    return re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")


def device_class(selector: DeviceSelector) -> str:
    """The devices that may run the job: "any", "cpu", "cpu/<model-slug>", "cpu:0-1", "cpu:0-1@host".

    An id says more than a model, a model more than a kind. A model without a kind reads "any/<model-slug>".
    """
    if selector.id is not None:
        return selector.id
    kind = selector.kind or ANY
    return f"{kind}/{model_slug(selector.model)}" if selector.model is not None else kind


def fits(selector: DeviceSelector, device: Device) -> bool:
    """Whether the device is one that the selector means, whatever frameworks it has."""
    return device_class(selector) in _device_classes(device)


def queue_for(selector: DeviceSelector, framework: str) -> str:
    """The queue that such a job waits in: its device class, with "+<framework>" unless that is TensorFlow."""
    return _queue(device_class(selector), framework)


def queues_served(device: Device) -> list[str]:
    """All queues whose jobs this device may take: six for each of its frameworks, the most particular first."""
    return [_queue(one, framework) for one in _device_classes(device) for framework in sorted(device.frameworks)]


def _queue(device_class: str, framework: str) -> str:
    return device_class if framework == UNMARKED_FRAMEWORK else f"{device_class}+{framework}"


def _device_classes(device: Device) -> list[str]:
    """An emulated device takes no job that asked for none in particular: its result would be untrusted."""
    slug = model_slug(device.model)
    particular = [device.full_id, device.id, f"{device.kind}/{slug}", f"{ANY}/{slug}", device.kind]
    return particular if device.emulated else [*particular, ANY]


DYNO_VERSION = metadata.version("tensordyno")
_NOT_IN_PROFILE = {"id", "host", "cores", "peak", "memory_bandwidth", "started_with", "started_with_reason"}
_PROFILE_FIELDS = sorted(Device.model_fields.keys() - _NOT_IN_PROFILE)
_PROFILE_DIGITS = 12  # 48 bits: among 1000 profiles, two share them in one fleet of 500 million


def profile(device: Device, version: str = DYNO_VERSION) -> str:
    """Devices with one profile fit the same jobs: they differ in name, place and speed only.

    `version`: of the Dyno that answers for it. Another may estimate otherwise, so it has profiles of its own: no job
    stays refused by what an older one wrote into its record.
    """
    told = {name: getattr(device, name) for name in _PROFILE_FIELDS}
    told["frameworks"] = sorted(device.frameworks.items())  # in whichever order they were found
    return hashlib.sha256(to_json([version, told])).hexdigest()[:_PROFILE_DIGITS]


def encode_fits(fits: Mapping[str, bool]) -> str:
    """The answers by profile in one field of the record: each profile with a plus or a minus behind it."""
    return "".join(f"{name}{_sign(answer)}" for name, answer in fits.items())


@dataclass(frozen=True)
class ClaimFilter:
    """What a claim goes by. `fits` is asked where the record doesn't know the profile; "" takes any job."""

    profile: str
    fits: Callable[[Spec], bool]

    def answer(self, text: str) -> str:
        """For a stored spec. One that can't be read fits: whoever claims it says what is wrong with it."""
        try:
            spec = read_spec(text)
        except (ValueError, TypeError):  # of JSON, or of the models
            return _sign(True)
        return _sign(self.fits(spec))


ANY_JOB = ClaimFilter("", lambda spec: True)


def _sign(fits: bool) -> str:
    return "+" if fits else "-"
