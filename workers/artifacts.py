"""The files of one attempt: the folder for what run 0 leaves, the weights it starts from, and the way to the store."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from dyno.artifacts.names import is_name
from dyno.artifacts.store import sha256_of, url_of
from dyno.errors import ArtifactStoreUnavailable, ArtifactTooLarge, StaleToken, StoreUnavailable
from dyno.job import Failure, FailureClass
from dyno.result import Artifact
from dyno.spec import WeightsRef
from dyno.store.leases import Claim
from dyno.workloads._training import TrainingParams
from dyno.workloads.contract import Params
from workers.delivery import Delivery, StoreAway, delivery
from workers.ending import Dropped, Failed
from workers.equipment import Equipment
from workers.errand import EndsHere, errand
from workers.fetch import fetch_weights
from workers.log import event
from workers.pulse import Pulse
from workers.scratch import scratch

T = TypeVar("T")

MAX_FILES = 100  # of one job: every one of them is in its result

_BEFORE, _AFTER = "files", "artifacts"  # phases, as progress shows them
_PROBE = "probe"  # an empty file; in no result, so that nobody ever sees it
_PROBE_PATIENCE_S = 5.0  # before the first run little is lost by giving up: an API that just starts again is waited for
_PAUSE_S = 0.5


class JobFiles:
    """Deletes all that is on this host at the end of the block. Methods raise EndsHere with how the attempt ends."""

    def __init__(self, claim: Claim, pulse: Pulse, equipment: Equipment) -> None:
        self._claim, self._pulse, self._equipment = claim, pulse, equipment
        self._settings = equipment.settings
        self._stack = ExitStack()
        self.weights: Path | None = None

    def __enter__(self) -> Self:
        try:
            self._folder = self._stack.enter_context(scratch(self._settings.run_dir))
        except OSError as error:
            detail = f"no folder for the job's files in {self._settings.run_dir}: {error}"
            raise EndsHere(_failed(FailureClass.INFRASTRUCTURE, "artifact_store_unavailable", detail)) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @cached_property
    def _delivery(self) -> Delivery:
        return delivery(self._settings, self._equipment.leases)

    @property
    def scratch(self) -> Path:
        """The folder that goes with the attempt."""
        return self._folder

    def empty(self) -> Path:
        """The folder for run 0, without what one that died in between has left in it."""
        folder = self._folder / "artifacts"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def prepare(self, params: Params) -> None:
        """Before the first run: try the store where the job will leave files, and fetch the weights it starts from.

        A training that can't keep its weights is found out now, and not after its hours.
        """
        if isinstance(params, TrainingParams):
            self._on_a_thread(self._probe, _BEFORE, 0)
            if params.weights is not None:
                self._fetch(params.weights)

    def _probe(self, abandoned: threading.Event) -> None:
        source = self._folder / _PROBE
        source.touch()
        patience_s = min(_PROBE_PATIENCE_S, self._settings.artifact_patience_s)
        self._put(_PROBE, sha256_of(source), source, (StoreAway, StoreUnavailable), patience_s, abandoned)

    def _fetch(self, ref: WeightsRef) -> None:
        folder = self._folder / "weights"
        folder.mkdir()
        leases, max_bytes = self._equipment.leases, self._settings.artifact_max_bytes

        def fetch(_: threading.Event) -> Path | Failure:
            return fetch_weights(ref, leases, self._delivery, folder, max_bytes)

        found = self._on_a_thread(fetch, _BEFORE, 0)
        if isinstance(found, Failure):
            raise EndsHere(Failed(found))
        self.weights = found

    def deliver(self, run: int) -> list[Artifact]:
        """After the last run, number `run`: store every file that run 0 left, and list them by name."""
        files = self._left_behind()
        return [self._on_a_thread(partial(self._store, path), _AFTER, run) for path in files]

    def _left_behind(self) -> list[Path]:
        """Regular files with a valid name: no links, no folders."""
        files: list[Path] = []
        refused: list[Path] = []
        for entry in sorted(os.scandir(self._folder / "artifacts"), key=lambda entry: entry.name):
            fits = entry.is_file(follow_symlinks=False) and is_name(entry.name) and len(files) < MAX_FILES
            (files if fits else refused).append(Path(entry.path))
        if refused:
            names = [path.name for path in refused]
            event("files-not-kept", logging.WARNING, job=self._claim.job_id, names=names)
        return files

    def _store(self, path: Path, abandoned: threading.Event) -> Artifact:
        size_bytes, sha256 = path.stat().st_size, sha256_of(path)
        if size_bytes > self._settings.artifact_max_bytes:
            limit = self._settings.artifact_max_bytes
            raise ArtifactTooLarge(f"the job left {path.name} of {size_bytes} bytes, at most {limit} are kept")
        passing = (ArtifactStoreUnavailable, StoreUnavailable)
        self._put(path.name, sha256, path, passing, self._settings.artifact_patience_s, abandoned)
        return Artifact(name=path.name, bytes=size_bytes, sha256=sha256, url=url_of(self._claim.job_id, path.name))

    def _put(
        self,
        name: str,
        sha256: str,
        source: Path,
        passing: tuple[type[Exception], ...],
        patience_s: float,
        abandoned: threading.Event,
    ) -> None:
        """Again and again for what passes, until `patience_s` are over."""
        deadline_s = self._equipment.clock() + patience_s
        while True:
            try:
                self._delivery.put(self._claim, name, sha256, source)
                return
            except passing as error:
                if abandoned.is_set() or self._equipment.clock() + _PAUSE_S >= deadline_s:
                    raise
                event("file-not-stored", logging.WARNING, job=self._claim.job_id, file=name, why=str(error))
            abandoned.wait(_PAUSE_S)

    def _on_a_thread(self, work: Callable[[threading.Event], T], phase: str, run: int) -> T:
        try:
            return errand(work, phase, run, self._pulse, self._equipment)
        except StaleToken as error:
            raise EndsHere(Dropped()) from error
        except ArtifactTooLarge as error:
            raise EndsHere(_failed(FailureClass.RESOURCE, "artifact_too_large", error.detail)) from error
        except (ArtifactStoreUnavailable, StoreUnavailable) as error:
            detail = f"the job's files can't be stored: {error.detail}"
            raise EndsHere(_failed(FailureClass.INFRASTRUCTURE, "artifact_store_unavailable", detail)) from error


def _failed(failure_class: FailureClass, reason: str, message: str) -> Failed:
    return Failed(Failure(failure_class=failure_class, reason=reason, message=message))
