"""Queues are routing classes: a job waits in exactly one, a device serves all that it fits.

A class is a device class and a framework, so that a worker without JAX never claims a JAX job. The default framework's
queues bear the device class alone, which is what they were called before there was a second one: jobs that wait in
them are found again after an upgrade.
"""

from __future__ import annotations

import re

from dyno.devices.device import Device
from dyno.models.spec import DeviceSelector, FrameworkName

ANY = "any"
UNNAMED: FrameworkName = "tensorflow"  # the framework that a queue's name leaves out


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
    return device_class if framework == UNNAMED else f"{device_class}+{framework}"


def _device_classes(device: Device) -> list[str]:
    """An emulated device takes no job that asked for none in particular: its result would be untrusted."""
    slug = model_slug(device.model)
    particular = [device.full_id, device.id, f"{device.kind}/{slug}", f"{ANY}/{slug}", device.kind]
    return particular if device.emulated else [*particular, ANY]
