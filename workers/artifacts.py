"""The files of one attempt: the folder for what run 0 leaves, the weights it starts from, and the way to the store."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from dyno.errors import ArtifactStoreUnavailable, ArtifactTooLarge, StaleToken, StoreUnavailable
from dyno.models.job import Failure, FailureClass
from dyno.models.spec import WeightsRef
from dyno.store.leases import Claim
from dyno.workloads.contract import Params
from dyno.workloads.training.params import TrainingParams
from workers.delivery import ArtifactStoreUnreachable, Delivery, Sender, artifact_transport
from workers.ending import Dropped, Failed
from workers.equipment import WorkerContext
from workers.errand import AttemptEnded, errand
from workers.fetch import fetch_weights
from workers.keeping import Keeping, Kept
from workers.pulse import Pulse
from workers.scratch import scratch_folder

T = TypeVar("T")

_BEFORE = "files"  # the phase, as progress shows it
_PROBE = "probe"  # in no result, so that nobody ever sees it, and swept when the job is done
_PROBE_BYTES = 64 * 1024  # an empty file would have room on a full disk
_PROBE_PATIENCE_S = 5.0  # before the first run little is lost by giving up: an API that just starts again is waited for


class JobFiles:
    """Deletes its files on this host at the end of the block. Methods raise AttemptEnded with how the attempt ends."""

    def __init__(self, claim: Claim, heartbeat: Pulse, context: WorkerContext) -> None:
        self._claim, self._heartbeat, self._context = claim, heartbeat, context
        self._settings = context.settings
        self._stack = ExitStack()
        self.weights: Path | None = None

    def __enter__(self) -> Self:
        try:
            self._folder = self._stack.enter_context(scratch_folder(self._settings.run_dir))
        except OSError as error:
            detail = f"no folder for the job's files in {self._settings.run_dir}: {error}"
            raise AttemptEnded(_failed(FailureClass.INFRASTRUCTURE, "artifact_store_unavailable", detail)) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @cached_property
    def _transport(self) -> Delivery:
        return artifact_transport(self._settings, self._context.leases)

    @property
    def scratch(self) -> Path:
        """The folder of all of them, which goes with the attempt."""
        return self._folder

    def empty(self) -> Path:
        """The folder for run 0, without what one that died in between has left in it."""
        folder = self._folder / "artifacts"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    @contextmanager
    def room(self) -> Iterator[Path]:
        """An empty folder for what one run puts aside, deleted after it: a hundred runs leave no more than one."""
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=self._folder))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def prepare(self, params: Params, *, leaves_files: bool = True) -> None:
        """Before the first run: try the store where the job will leave files, and fetch the weights it starts from.

        A training that can't keep its weights is found out now, and not after its hours: `deliver` can only warn.
        """
        if isinstance(params, TrainingParams):
            if leaves_files:
                self._on_a_thread(self._probe)
            if params.weights is not None:
                self._fetch(params.weights)

    def _probe(self, abandoned: threading.Event) -> None:
        source = self._folder / _PROBE
        source.write_bytes(bytes(min(_PROBE_BYTES, self._settings.artifact_max_bytes)))
        patience_s = min(_PROBE_PATIENCE_S, self._settings.artifact_patience_s)
        self._sender().send(source, patience_s, (ArtifactStoreUnreachable, StoreUnavailable), abandoned)

    def _fetch(self, ref: WeightsRef) -> None:
        folder = self._folder / "weights"
        folder.mkdir()
        leases, max_bytes = self._context.leases, self._settings.artifact_max_bytes

        def fetch(_: threading.Event) -> Path | Failure:
            return fetch_weights(ref, self._claim, leases, self._transport, folder, max_bytes)

        found = self._on_a_thread(fetch)
        if isinstance(found, Failure):
            raise AttemptEnded(Failed(found))
        self.weights = found

    def deliver(self, run: int) -> Kept:
        """After the last run, number `run`: store every file that run 0 left. A store that fails ends no attempt."""
        return Keeping(self._sender, self._claim, self._heartbeat, self._context, run).keep(self._folder / "artifacts")

    def _sender(self) -> Sender:
        return Sender(self._transport, self._claim, self._context.clock)

    def _on_a_thread(self, work: Callable[[threading.Event], T]) -> T:
        try:
            return errand(work, _BEFORE, 0, self._heartbeat, self._context)
        except StaleToken as error:
            raise AttemptEnded(Dropped()) from error
        except (ArtifactStoreUnavailable, ArtifactTooLarge, StoreUnavailable) as error:
            detail = f"the job's files can't be stored: {error.detail}"
            raise AttemptEnded(_failed(FailureClass.INFRASTRUCTURE, "artifact_store_unavailable", detail)) from error


def _failed(failure_class: FailureClass, reason: str, message: str) -> Failed:
    return Failed(Failure(failure_class=failure_class, reason=reason, message=message))
