"""Which devices a job fits, as its record remembers it: one answer for each profile of a device.

What fits is for the workload to say, which the store doesn't know. The API answers for all devices there are when it
admits a job; of any other the claim asks the worker (a device that came later, a job that was queued before any was
there, a record of an older version).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata

from pydantic_core import to_json

from dyno.devices.device import Device
from dyno.models.spec import Spec
from dyno.store.records import read_spec

VERSION = metadata.version("tensordyno")
_APART = {"id", "host", "cores", "peak", "memory_bandwidth", "started_with", "started_with_reason"}
_TOLD = sorted(Device.model_fields.keys() - _APART)
_DIGITS = 12  # 48 bits: among 1000 profiles, two share them in one fleet of 500 million


def profile(device: Device, version: str = VERSION) -> str:
    """Devices with one profile fit the same jobs: they differ in name, place and speed only.

    `version`: of the Dyno that answers for it. Another may estimate otherwise, so it has profiles of its own: no job
    stays refused by what an older one wrote into its record.
    """
    told = {name: getattr(device, name) for name in _TOLD}
    told["frameworks"] = sorted(device.frameworks.items())  # in whichever order they were found
    return hashlib.sha256(to_json([version, told])).hexdigest()[:_DIGITS]


def packed(fits: Mapping[str, bool]) -> str:
    """The answers by profile in one field of the record: each profile with a plus or a minus behind it."""
    return "".join(f"{name}{_sign(answer)}" for name, answer in fits.items())


@dataclass(frozen=True)
class Taker:
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


ANY_JOB = Taker("", lambda spec: True)


def _sign(fits: bool) -> str:
    return "+" if fits else "-"
