"""One worker: one device, a supervisor, the zygotes, and the threads that speak for it."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

import redis

from dyno.artifact_store import shared_store
from dyno.celery_app import send_wake_up
from dyno.devices.cpu import parse_cpulist
from dyno.devices.device import Device
from dyno.devices.discovery import discover
from dyno.devices.locks import DeviceTurn, lock_paths
from dyno.errors import DeviceUnavailable, FrameworkMissing, StoreUnavailable, WorkerExit
from dyno.logging import tracer_for
from dyno.models.inventory import WorkerRecord
from dyno.models.job import Holder, WorkerRef
from dyno.settings import Settings
from dyno.store.connect import check_server, sync_client
from dyno.store.leases import Leases
from dyno.store.upkeep import Upkeep
from dyno.workloads import registry
from workers.bounds import host_share_bytes
from workers.cgroup import runner_cgroup
from workers.consumer import Consumer, on_signals
from workers.equipment import WorkerContext
from workers.launcher import DEFAULT_FRAMEWORK, Launcher
from workers.log import event
from workers.peaks import measured_peaks
from workers.presence import Presence
from workers.proof import prove_fork
from workers.second_look import lost
from workers.spool import Spool
from workers.stop import stopping_within
from workers.supervisor import Supervisor
from workers.telling import catch_up


class Worker:
    """Everything in the order it starts.

    Raises DeviceUnavailable, FrameworkMissing, TracingMissing, WorkloadFault, StoreUnfit or ArtifactStoreUnfit before
    anything has started; a store that is away may come.
    """

    def __init__(self, device: str, name: str | None, settings: Settings, emulate: str | None = None) -> None:
        self._settings = settings
        self._device = discover(device, settings, emulate)
        if not self._device.frameworks:  # it would serve no queue
            raise FrameworkMissing('no framework is installed beside this worker: pip install "tensordyno[cpu]"')
        self._workloads = registry()
        self._traces = tracer_for(settings, "dyno-worker", sends_by_itself=False)
        shared_store(settings)  # only to hear now that it can't be used
        self._client = sync_client(settings)
        _check_store(self._client, settings)
        self._name = name or f"{self._device.full_id}.{secrets.token_hex(3)}"
        _keep_off(self._device, settings)

    def run(self) -> int:
        """Returns the exit code when a signal has ended it."""
        on_signals(_leave)
        # Before the seconds that preparing takes: a lease that ran out may be taken any moment.
        catch_up(Spool(self._settings.spool_dir, self._settings.namespace), Leases(self._client, self._settings))
        with ExitStack() as stack:
            cgroup = runner_cgroup(host_share_bytes(self._settings), self._settings.runner_max_tasks)
            launcher = Launcher(self._settings.worker_start, self._device.cores, cgroup)
            stack.callback(launcher.close)
            self._presence = Presence(
                self._client, self._settings, self._record(), lambda: launcher.describe(self._device)
            )
            stack.callback(self._presence.stop)
            self._presence.start()
            prepare = partial(self._prepare, launcher)
            turn = DeviceTurn(self._device, self._settings)
            try:
                found = turn.take()
            except DeviceUnavailable as error:
                event("not-started", logging.ERROR, code=error.code, why=error.detail)
                return WorkerExit.NOT_STARTED
            if isinstance(found, Holder):
                turn.leave()
                event("device-held", logging.WARNING, why=str(found), then="peaks are measured before the first job")
                return self._serve(launcher, stack, prepare)
            with found:
                prepare()
            return self._serve(launcher, stack)

    def _prepare(self, launcher: Launcher) -> Device:
        """Peaks first: nothing else should run on the device's cores meanwhile."""
        locks = lock_paths(self._device, self._settings)
        self._device = self._device.model_copy(update={"peak": measured_peaks(launcher, self._device, locks)})
        if DEFAULT_FRAMEWORK in self._device.frameworks:
            launcher.prepare(DEFAULT_FRAMEWORK)
        prove_fork(launcher, self._device, self._settings)
        return self._device

    def _serve(self, launcher: Launcher, stack: ExitStack, prepare: Callable[[], Device] | None = None) -> int:
        leases = Leases(self._client, self._settings)
        call = partial(send_wake_up, self._settings)
        gone = partial(self._gone, launcher)
        context = WorkerContext(
            self._device, leases, launcher, self._settings, self._workloads, gone=gone, traces=self._traces
        )
        worker = WorkerRef(id=self._name, device=self._device.full_id, host=self._device.host)
        supervisor = Supervisor(
            context, worker, call, self._presence.show, lambda: consumer.end(WorkerExit.DEVICE_GONE), prepare
        )
        consumer = Consumer(self._settings, self._device, self._name, supervisor.serve)
        upkeep = Upkeep(self._settings, call, {"writing what was spooled": lambda _: supervisor.catch_up()})
        upkeep.start()
        stack.callback(upkeep.stop)
        self._presence.show("idle", None)
        on_signals(stopping_within(self._settings.shutdown_s, supervisor.stop, consumer.end))
        return consumer.run()

    def _gone(self, launcher: Launcher) -> str | None:
        """Of an accelerator. Cores that a runner can't have it says itself, and this process may have others."""
        return None if self._device.driven_as == "cpu" else lost(launcher, self._device.id)

    def _record(self) -> WorkerRecord:
        return WorkerRecord(
            id=self._name,
            host=self._device.host,
            pid=os.getpid(),
            device=self._device.full_id,
            state="starting",
            version=version("tensordyno"),
            started_at=datetime.now(UTC),
        )


def _check_store(client: redis.Redis, settings: Settings) -> None:
    try:
        for complaint in check_server(client, settings):
            event("store-complaint", logging.WARNING, what=complaint)
    except StoreUnavailable as error:
        event("store-away", logging.WARNING, why=error.detail)


def _leave(number: signal.Signals) -> None:
    """A signal while starting: nothing has been claimed, so unwind and go."""
    sys.exit(128 + number)


def _keep_off(device: Device, settings: Settings) -> None:
    """Keep this process off the cores that it measures on.

    That is the threads it has (OpenBLAS' came with an import); a thread to come starts on its starter's cores.
    """
    if settings.reserved_cores is None or device.driven_as != "cpu":
        return
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), parse_cpulist(settings.reserved_cores))
