"""The calls of the client that are about devices."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from dyno.client.transport import Transport


class DeviceCalls:
    _http: Transport

    def devices(self) -> list[dict[str, Any]]:
        data: list[dict[str, Any]] = self._http.call("GET", "/v1/devices")["data"]
        return data

    def cordoned_away(self) -> list[str]:
        """With their hosts, the cordoned devices whose workers are away."""
        names: list[str] = self._http.call("GET", "/v1/devices").get("cordoned_away", [])
        return names

    def cordon(self, device: str) -> dict[str, Any]:
        """Let the device finish what it runs and take no other job: `device` with its host, `cordoned`.

        Raises Refused where there is none of that name.
        """
        return self._ask_of(device, "cordon")

    def uncordon(self, device: str) -> dict[str, Any]:
        """Let it take jobs again; otherwise as `cordon`."""
        return self._ask_of(device, "uncordon")

    def _ask_of(self, device: str, what: str) -> dict[str, Any]:
        answer: dict[str, Any] = self._http.call("POST", f"/v1/devices/{quote(device, safe='')}/{what}")
        return answer
