"""Devices, and records of their workers."""

from datetime import UTC, datetime

from dyno.models.device import Device
from dyno.models.inventory import WorkerRecord
from dyno.store.placement import DYNO_VERSION

CPU = Device(id="cpu:0-1", kind="cpu", model="EPYC", host="alpha", memory_bytes=1, frameworks={"tensorflow": "2"})


def gpu(number, **fields):
    known = {"id": f"gpu:{number}", "kind": "gpu", "model": "H100", "host": "alpha", "memory_bytes": 1}
    return Device.model_validate(known | {"frameworks": {"tensorflow": "2"}} | fields)


def worker_of(device, **fields):
    """The record of an idle worker of this version."""
    known = {"id": device.id, "host": device.host, "pid": 1, "device": device.full_id, "state": "idle"}
    return WorkerRecord.model_validate(known | {"version": DYNO_VERSION, "started_at": datetime.now(UTC)} | fields)


def a_worker(name="worker-1", **fields):
    return worker_of(CPU, id=name, **fields)
