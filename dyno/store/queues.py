"""Queues are routing classes: a job waits in exactly one, a device serves all that it fits."""

from __future__ import annotations

import re

from dyno.devices.device import Device
from dyno.spec import DeviceSelector

ANY = "any"


def model_slug(model: str) -> str:
    """A device model as part of a queue's name: lower case, anything but letters and digits becomes one dash."""
    return re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")


def queue_for(selector: DeviceSelector) -> str:
    """The queue that a job with this selector waits in: "any", "cpu", "cpu/<model-slug>", "cpu:0-1", "cpu:0-1@host".

    An id says more than a model, a model more than a kind. A model without a kind reads "any/<model-slug>".
    """
    if selector.id is not None:
        return selector.id
    kind = selector.kind or ANY
    return f"{kind}/{model_slug(selector.model)}" if selector.model is not None else kind


def queues_served(device: Device) -> list[str]:
    """All queues whose jobs this device may take, the most particular first."""
    slug = model_slug(device.model)
    return [device.full_id, device.id, f"{device.kind}/{slug}", f"{ANY}/{slug}", device.kind, ANY]
