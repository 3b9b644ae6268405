"""The calls that are about devices."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from dyno.client.call import call
from dyno.client.steps import Steps, asked


class DeviceCalls:
    """Of both clients."""

    @call
    def devices(self) -> Steps[list[dict[str, Any]]]:
        """What live workers offer, as the API says it."""
        data: list[dict[str, Any]] = (yield from asked("GET", "/v1/devices"))["data"]
        return data

    @call
    def cordoned_away(self) -> Steps[list[str]]:
        """With their hosts, the cordoned devices whose workers are away."""
        names: list[str] = (yield from asked("GET", "/v1/devices")).get("cordoned_away", [])
        return names

    @call
    def cordon(self, device: str) -> Steps[dict[str, Any]]:
        """Let the device finish what it runs and take no other job: `device` with its host, `cordoned`.

        Raises Refused where there is none of that name.
        """
        return asked("POST", f"{_of(device)}/cordon")

    @call
    def uncordon(self, device: str) -> Steps[dict[str, Any]]:
        """Let it take jobs again; otherwise as `cordon`."""
        return asked("POST", f"{_of(device)}/uncordon")


def _of(device: str) -> str:
    return f"/v1/devices/{quote(device, safe='')}"
