"""One worker: one device, a supervisor, the zygotes, and the threads that register it and maintain the store."""

import logging
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

import redis

from dyno import artifact_store, celery_app, errors, folders
from dyno.bench.devices import cpu
from dyno.bench.devices.discovery import boot_id, discover, missing_frameworks
from dyno.bench.devices.locks import DeviceTurn, lock_paths
from dyno.bench.frameworks import visible_devices
from dyno.bench.registry import registry
from dyno.bench.runner import health_check, limits, monitor
from dyno.bench.runner.launcher import DEFAULT_FRAMEWORK, Launcher
from dyno.logging import event
from dyno.models.device import Device
from dyno.models.inventory import WorkerRecord, WorkerState
from dyno.models.job import Holder, WorkerRef
from dyno.settings import Settings, WrongSettings
from dyno.store import fleet
from dyno.store.leases import Leases
from dyno.store.maintenance import Maintenance
from dyno.store.redis import check_server, sync_client
from dyno.tracing import tracer_for
from workers import attempt
from workers.consumer import Consumer, on_signals
from workers.outbox import Outbox, deliver_waiting
from workers.supervisor import Supervisor

_UPDATES_PER_TTL = 3  # so that a device isn't removed after only two lost updates
_HOST_POLL_S = 0.1


def claim_host_name(client: redis.Redis, settings: Settings, name: str, boot_id: str) -> None:
    """Claim the host's name for this machine. Raises HostNameTaken if another machine with a live worker has the name.

    A machine that is gone, or this machine before its restart, may still hold a claim. Wait for that claim to expire,
    which takes at most `device_ttl_s`. If the store is unreachable, the worker's registration claims the name later.
    """
    until_s = time.monotonic() + settings.device_ttl_s + _HOST_POLL_S
    try:
        while True:
            claimed_s = time.monotonic()  # Redis may respond long after this, when the other claim has expired
            if fleet.claim_host(client, settings, name, boot_id):
                return
            if claimed_s > until_s:
                raise errors.HostNameTaken(_taken(name))
            time.sleep(_HOST_POLL_S)
    except errors.StoreUnavailable as error:
        event("store-away", logging.WARNING, why=error.detail)


def _taken(name: str) -> str:
    return (
        f'another machine has live workers under the host name "{name}", so both would share device ids and leases; '
        "set DYNO_HOSTNAME to another name here, or end its workers"
    )


class Registration:
    """Publishes the worker's record from a separate thread at each change, and extends its expiry between changes.

    `device()` returns the current device. `owns_name()` returns whether this machine still has the host's name. If not,
    the record is no longer published, and `name_taken` is called once.
    """

    def __init__(
        self,
        client: redis.Redis,
        settings: Settings,
        worker: WorkerRecord,
        device: Callable[[], Device],
        owns_name: Callable[[], bool] = lambda: True,
        name_taken: Callable[[], object] = lambda: None,
    ) -> None:
        self._outbox = Outbox(settings.spool_dir, settings.namespace)
        self._client, self._settings, self._worker, self._device = client, settings, worker, device
        self._owns_name, self._name_taken, self._is_taken = owns_name, name_taken, False
        self._changed, self._ended = threading.Event(), False
        self._published: tuple[Device, WorkerRecord] | None = None
        self._thread = threading.Thread(target=self._go_on, name="registration", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def show(self, state: WorkerState, job: str | None = None, held_by: Holder | None = None) -> None:
        self._worker = self._worker.model_copy(update={"state": state, "job": job, "held_by": held_by})
        self._changed.set()

    def stop(self) -> None:
        """Remove the device from the list. Returns once Redis has removed the device, or if Redis is unreachable."""
        self._ended = True
        self._changed.set()
        self._thread.join()

    def _go_on(self) -> None:
        while not self._ended:
            self._write(self._report)
            self._changed.wait(self._settings.device_ttl_s / _UPDATES_PER_TTL)
            self._changed.clear()
        self._write(lambda: fleet.withdraw(self._client, self._settings, self._worker))

    def _report(self) -> None:
        if self._is_taken or not self._owns_name():
            if not self._is_taken:
                self._is_taken = True
                self._name_taken()
            return
        current = self._device(), self._worker.model_copy(update={"outbox": self._outbox.count()})
        if current == self._published and fleet.extend(self._client, self._settings, self._worker):
            return
        self._published = None  # a write that failed here may still have reached Redis
        fleet.publish(self._client, self._settings, *current)
        self._published = current

    def _write(self, action: Callable[[], None]) -> None:
        try:
            action()
        except errors.StoreUnavailable as error:
            event("presence-not-written", logging.WARNING, why=error.detail)
        except redis.ResponseError as error:  # a damaged key, which maintenance will repair; this thread must go on
            event("presence-not-written", logging.WARNING, why=str(error))


class Worker:
    """A worker with all its parts, in the order of their start.

    Before it starts anything, the constructor raises DeviceUnavailable, FrameworkMissing, TracingMissing,
    WorkloadFault, StoreUnfit, WrongSettings, ArtifactStoreUnfit or HostNameTaken. An unreachable store isn't an error,
    since it may become available.
    """

    def __init__(self, device: str, name: str | None, settings: Settings, emulate: str | None = None) -> None:
        self._settings = settings
        self._device = discover(device, settings, emulate)
        if not self._device.frameworks:  # the worker would serve no queue
            raise errors.FrameworkMissing(missing_frameworks(self._device.driven_as))
        self._workloads = registry()
        _check_outbox_folder(settings)
        self._traces = tracer_for(settings, "dyno-worker", sends_by_itself=False)
        artifact_store.shared_store(settings)  # fail now if the shared store can't be used
        self._client = sync_client(settings)
        _check_store(self._client, settings)
        self._boot_id = boot_id()
        claim_host_name(self._client, settings, self._device.host, self._boot_id)
        self._end: Callable[[], None] = lambda: os.kill(os.getpid(), signal.SIGTERM)  # until the worker can claim jobs
        self._name = name or f"{self._device.full_id}.{secrets.token_hex(3)}"
        _keep_off(self._device, settings)

    def run(self) -> int:
        """Run until a signal or the loss of the device ends the worker. Returns the exit code."""
        on_signals(_leave)
        # Do this before the preparation, which takes seconds: another worker may take over expired leases meanwhile.
        deliver_waiting(
            Outbox(self._settings.spool_dir, self._settings.namespace), Leases(self._client, self._settings)
        )
        with ExitStack() as stack:
            cgroup = limits.runner_cgroup(limits.host_share_bytes(self._settings), self._settings.runner_max_tasks)
            variables = visible_devices.isolating_variables(self._device.driven_as, self._device.uuids)
            passed = self._settings.runner_env
            launcher = Launcher(self._settings.worker_start, self._device.cores, cgroup, variables, passed)
            stack.callback(launcher.close)
            self._registration = Registration(
                self._client,
                self._settings,
                self._record(),
                lambda: launcher.describe(self._device),
                lambda: fleet.claim_host(self._client, self._settings, self._device.host, self._boot_id),
                self._on_name_taken,
            )
            stack.callback(self._registration.stop)
            self._registration.start()
            prepare = partial(self._prepare, launcher)
            turn = DeviceTurn(self._device, self._settings)
            try:
                held = turn.take()
            except errors.DeviceUnavailable as error:
                event("not-started", logging.ERROR, code=error.code, why=error.detail)
                return errors.WorkerExit.NOT_STARTED
            if isinstance(held, Holder):
                turn.leave()
                event("device-held", logging.WARNING, why=str(held), then="peaks are measured before the first job")
                return self._serve(launcher, stack, prepare)
            with held:
                prepare()
            return self._serve(launcher, stack)

    def _prepare(self, launcher: Launcher) -> Device:
        """Measure the peaks, and only then start the zygote and the self-test, which would disturb the measurement."""
        locks = lock_paths(self._device, self._settings)
        self._device = health_check.with_measured_peaks(launcher, self._device, locks)
        if DEFAULT_FRAMEWORK in self._device.frameworks:
            launcher.prepare(DEFAULT_FRAMEWORK)
        health_check.prove_fork(launcher, self._device, self._settings)
        return self._device

    def _serve(self, launcher: Launcher, stack: ExitStack, prepare: Callable[[], Device] | None = None) -> int:
        leases = Leases(self._client, self._settings)
        call = partial(celery_app.send_wake_up, self._settings)
        gone = partial(self._gone, launcher)
        context = attempt.WorkerContext(
            self._device, leases, launcher, self._settings, self._workloads, gone=gone, traces=self._traces
        )
        worker = WorkerRef(id=self._name, device=self._device.full_id, host=self._device.host)
        supervisor = Supervisor(
            context, worker, call, self._registration.show, lambda: consumer.end(errors.WorkerExit.DEVICE_GONE), prepare
        )
        consumer = Consumer(self._settings, self._device, self._name, supervisor.serve)
        chores: dict[str, Callable[[redis.Redis], object]] = {
            "writing what was spooled": lambda _: supervisor.catch_up(),
            "ending records of the future": partial(fleet.end_future_records, settings=self._settings),
        }
        maintenance = Maintenance(self._settings, call, chores)
        maintenance.start()
        stack.callback(maintenance.stop)
        self._registration.show("idle", None)

        def end() -> None:
            supervisor.stop(0)
            consumer.end(errors.WorkerExit.NOT_STARTED)

        self._end = end
        on_signals(monitor.shutdown_handler(self._settings.shutdown_s, supervisor.stop, consumer.end))
        return consumer.run()

    def _on_name_taken(self) -> None:
        event("host-name-taken", logging.ERROR, why=_taken(self._device.host))
        self._end()

    def _gone(self, launcher: Launcher) -> str | None:
        """The reason why the accelerator is gone, or None. CPUs aren't checked: a runner reports missing cores itself,
        and may run on other cores than this process.
        """
        return None if self._device.driven_as == "cpu" else health_check.device_loss(launcher, self._device)

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
        # Only the API checks how often Redis syncs: a worker's Redis user may lack the right to read that setting.
        for fault in check_server(client, settings, with_syncing=False):
            event("store-complaint", logging.WARNING, what=fault.detail)
    except errors.StoreUnavailable as error:
        event("store-away", logging.WARNING, why=error.detail)


def _check_outbox_folder(settings: Settings) -> None:
    """Raises WrongSettings if other users could change the outbox. The outbox creates a missing folder later."""
    folder = settings.spool_dir
    try:
        reason = folders.unsafe_reason(folder)
    except OSError:
        return
    if reason:
        raise WrongSettings(f"DYNO_SPOOL_DIR: {folder} isn't safe: {reason}. Name a folder of this user")


def _leave(number: signal.Signals) -> None:
    """Exit on a signal during startup: no job has been claimed yet."""
    sys.exit(128 + number)


def _keep_off(device: Device, settings: Settings) -> None:
    """Keep this process off the cores that it measures on.

    This moves all existing threads, including threads that OpenBLAS starts on import. New threads inherit the cores.
    """
    reserved = cpu.reserved_cores(settings)
    if not reserved or device.driven_as != "cpu":
        return
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), reserved)
