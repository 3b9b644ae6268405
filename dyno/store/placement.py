"""Placement: the queue that a job waits in, the queues that a device serves, and whether a job fits a device.

Queues are routing classes: a job waits in exactly one queue, and a device serves every queue that it matches. A queue's
name is a device class and a framework, so a worker without JAX never claims a JAX job. Queues of the default framework
have only the device class as their name.

A job's workload decides whether the job fits a device, and the store doesn't import workloads. Jobs of a queue with
equal needs form a placement class, which keeps one answer per device profile. The API checks the fit for all live
devices when it admits a job. For any other profile (a device that joined later, or a job queued before any device
joined), the claim asks the worker once per class.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata

from pydantic_core import to_json

from dyno.models.device import Device, device_class, device_classes
from dyno.models.spec import DeviceSelector, FrameworkName, Spec
from dyno.store.records import read_spec

UNMARKED_FRAMEWORK: FrameworkName = "tensorflow"  # the framework that a queue's name leaves out


def queue_for(selector: DeviceSelector, framework: str) -> str:
    """The queue that a job waits in: its device class, followed by "+<framework>" except for TensorFlow."""
    return _queue(device_class(selector), framework)


def queues_served(device: Device) -> list[str]:
    """All queues whose jobs this device may take, most specific first: up to six for each of its frameworks."""
    return [_queue(one, framework) for one in device_classes(device) for framework in sorted(device.frameworks)]


def _queue(of_class: str, framework: str) -> str:
    return of_class if framework == UNMARKED_FRAMEWORK else f"{of_class}+{framework}"


DYNO_VERSION = metadata.version("tensordyno")
_NOT_IN_PROFILE = {
    *("id", "host", "cores", "uuids", "peak", "memory_bandwidth", "started_with", "started_with_reason"),
}
_PROFILE_FIELDS = sorted(Device.model_fields.keys() - _NOT_IN_PROFILE)
_DIGEST_DIGITS = 12  # 48 bits: of 500 million fleets with 1000 profiles each, one has a collision


def profile(device: Device, version: str = DYNO_VERSION) -> str:
    """A digest of the properties that decide which jobs fit. Devices with the same profile differ only in name, host
    and speed.

    `version`: the Dyno version that checks the fit. Versions may estimate differently, so each version has its own
    profiles. So after an upgrade, a device may claim a job that didn't fit according to the older version.
    """
    properties = {name: getattr(device, name) for name in _PROFILE_FIELDS}
    properties["frameworks"] = sorted(device.frameworks.items())  # detection order varies
    return hashlib.sha256(to_json([version, properties])).hexdigest()[:_DIGEST_DIGITS]


def needs(spec: Spec) -> str:
    """A digest of all fields that decide which devices of a queue the job fits. `ClaimFilter.fits` uses only these."""
    arms = [(arm.workload, arm.framework, arm.replicas, sorted(arm.params.items())) for arm in spec.arms]
    return hashlib.sha256(to_json(arms)).hexdigest()[:_DIGEST_DIGITS]


def encode_fits(fits: Mapping[str, bool]) -> str:
    """Encode the answers by profile for the record: each profile, followed by a plus or a minus."""
    return "".join(f"{name}{_sign(answer)}" for name, answer in fits.items())


@dataclass(frozen=True)
class ClaimFilter:
    """Decides which jobs a claim takes.

    `fits` is called if the record has no answer for the profile. The profile "" takes any job.
    """

    profile: str
    fits: Callable[[Spec], bool]

    def answer(self, text: str) -> str:
        """Whether a stored spec fits, as claim.lua's "+", "-" or "!"."""
        try:
            spec = read_spec(text)
        except (ValueError, TypeError):  # raised by JSON or by the models
            return "!"
        return _sign(self.fits(spec))


ANY_JOB = ClaimFilter("", lambda spec: True)


def _sign(fits: bool) -> str:
    return "+" if fits else "-"
