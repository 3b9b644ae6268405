"""The calls that are about what there is to run, and to run it on."""

from __future__ import annotations

from dyno.catalogue import WorkloadEntry, WorkloadList
from dyno.client.call import call
from dyno.client.paths import in_path
from dyno.client.steps import Steps, asked
from dyno.fleet import AwayDevice, Cordon, DeviceList, DeviceStatus, WorkerList, WorkerRecord


class FleetCalls:
    """Of both clients."""

    @call
    def workloads(self) -> Steps[list[WorkloadEntry]]:
        """What there is to run."""
        return (yield from asked(WorkloadList, "GET", "/v1/workloads")).data

    @call
    def workload(self, name: str) -> Steps[WorkloadEntry]:
        """One of them, with its params. Raises Refused where there is none of that name."""
        return asked(WorkloadEntry, "GET", f"/v1/workloads/{in_path(name)}")

    @call
    def devices(self) -> Steps[list[DeviceStatus]]:
        """What live workers offer."""
        return (yield from asked(DeviceList, "GET", "/v1/devices")).data

    @call
    def cordoned_away(self) -> Steps[list[AwayDevice]]:
        """The cordoned devices whose workers are away."""
        names = (yield from asked(DeviceList, "GET", "/v1/devices")).cordoned_away
        return [AwayDevice(id=name.partition("@")[0], host=name.partition("@")[2]) for name in names]

    @call
    def workers(self) -> Steps[list[WorkerRecord]]:
        """The live workers; the job that one runs is null where it is another key's."""
        return (yield from asked(WorkerList, "GET", "/v1/workers")).data

    @call
    def cordon(self, device: str) -> Steps[Cordon]:
        """Let the device finish what it runs and take no other job.

        Raises Refused where there is none of that name.
        """
        return asked(Cordon, "POST", f"/v1/devices/{in_path(device)}/cordon")

    @call
    def uncordon(self, device: str) -> Steps[Cordon]:
        """Let it take jobs again; otherwise as `cordon`."""
        return asked(Cordon, "POST", f"/v1/devices/{in_path(device)}/uncordon")
