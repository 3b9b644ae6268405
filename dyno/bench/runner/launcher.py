"""Start runners, forked from a zygote or spawned, and communicate with zygotes and runners over pipes and a socket.

The kernel sends the parent-death signal when the *thread* that started a process ends. A zygote started on a pool's
thread would die with that thread, and its runners with it. So the launcher starts every zygote on one thread of its
own, which lives as long as the worker.

Stdout and stderr of a runner go to a pipe. The launcher keeps only the end of the output, so it can't fill a disk.

A workload may be anyone's code, so a runner gets only the variables that Python, the frameworks and their libraries
read: no credentials and no addresses of services. `DYNO_RUNNER_ENV` names further variables that an operator allows.
"""

import contextlib
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Self

from dyno.bench.devices.discovery import installed_frameworks
from dyno.bench.devices.environment import FLAGS
from dyno.bench.runner.limits import Cgroup
from dyno.bench.runner.zygote import FRAMES_FD, REQUEST_FD
from dyno.logging import event
from dyno.models import runner_protocol
from dyno.models.device import Device

TAIL_BYTES = 4096
_READ_BYTES = 65536
_MOST_READS = 32  # 2 MiB; a pipe holds 1 MiB at most


class LogTail:
    """Keeps the last `TAIL_BYTES` of a runner's output. The launcher passes `write_fd` to the runner, then closes it.

    `read` calls `pass_on` with all data that it has read.
    """

    def __init__(self) -> None:
        self.pass_on: Callable[[bytes], object] = lambda data: None
        self.read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.read_fd, False)
        self._tail = b""

    def read(self) -> int | None:
        """Read the available data, 64 KiB at most, so that a flood of output can't block the reader.

        Returns the number of bytes, 0 once all writers have closed the pipe, None if there is no data now.
        """
        try:
            data = os.read(self.read_fd, _READ_BYTES)
        except BlockingIOError:
            return None
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        if data:
            self.pass_on(data)
        return len(data)

    def drain(self) -> None:
        """Read the data that a dead writer left in the pipe. Bounded, because an escaped process may still write."""
        for _ in range(_MOST_READS):
            if not self.read():
                return

    def text(self) -> str | None:
        """The kept output; None if there was none. Invalid UTF-8 is replaced."""
        return self._tail.decode("utf-8", "replace") or None

    def close(self) -> None:
        os.close(self.read_fd)


_GRACE_S = 3.0  # a zygote waits up to 2 s for the processes that it kills


class ZygoteProcess:
    """A zygote. The constructor starts it without waiting for its imports. It dies with the thread that starts it."""

    def __init__(
        self,
        framework: str | None,
        cores: Sequence[int],
        doors: Sequence[str],
        environment: Mapping[str, str],
    ) -> None:
        """`doors`: the `cgroup.procs` files through which the zygote joins its runners' cgroups.

        `environment`: the variables of the zygote and its runners.
        """
        self.framework = framework
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # TensorFlow prints messages on import. They stay out of the worker's stderr, and are logged if the zygote dies.
        self._log_fd = os.memfd_create("zygote-log", os.MFD_CLOEXEC)
        with theirs:
            self._process = subprocess.Popen(
                _command(framework, theirs.fileno(), cores, doors),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._log_fd,
                stderr=self._log_fd,
                env=environment,
                start_new_session=True,  # the supervisor alone handles Ctrl-C in the worker's terminal
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, argv: list[str] | None, fds: list[int]) -> None:
        """Request a child with `fds` = frames, log, request, status. `argv`: the arguments of a spawned child's
        interpreter.

        Raises BrokenPipeError or ConnectionResetError if the zygote is gone.
        """
        socket.send_fds(self._control, [json.dumps({"argv": argv}).encode()], fds)

    def end(self) -> None:
        """End and reap the zygote, with its children and their orphans. Kill it if it doesn't end by itself."""
        self._control.close()
        self._process.terminate()
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._log_fd)

    def obituary(self) -> str | None:
        """Exit code and last output of a zygote that died; None while it is alive."""
        code = self._process.poll()
        if code is None:
            return None
        start = max(0, os.fstat(self._log_fd).st_size - TAIL_BYTES)
        return f"exit code {code}\n{os.pread(self._log_fd, TAIL_BYTES, start).decode('utf-8', 'replace')}"


def _command(framework: str | None, socket_fd: int, cores: Sequence[int], doors: Sequence[str]) -> list[str]:
    command = [
        sys.executable,
        "-P",
        "-m",
        "dyno.bench.runner.zygote",
        "--socket-fd",
        str(socket_fd),
        "--parent",
        str(os.getpid()),
    ]
    if framework is not None:
        command += ["--framework", framework]
    if cores:
        command += ["--cores", ",".join(map(str, cores))]
    for door in doors:
        command += ["--join", door]
    return command


AnyFrame = (
    runner_protocol.StartedFrame
    | runner_protocol.FirstOpFrame
    | runner_protocol.ProgressFrame
    | runner_protocol.DoneFrame
    | runner_protocol.FailedFrame
)

_LINE_BYTES = 64 * 1024 * 1024  # a record with 100,000 samples takes 10 MB


@dataclass(frozen=True)
class RunnerExit:
    """How a runner ended: its exit code or signal, or `lost` if the zygote died and the runner with it.

    `refused`: why the zygote didn't start the runner. `passing`: the reason is temporary.
    """

    code: int | None = None
    signal: int | None = None
    lost: bool = False
    refused: str | None = None
    passing: bool = False


@dataclass
class RunnerProcess:
    """A process that runs one spec once. Its descriptors are non-blocking.

    `kill_zygote` ends a runner whose pid isn't known yet, or whose end the zygote doesn't report.
    """

    start: Literal["forked", "spawned"]
    frames_fd: int
    status_fd: int
    log: LogTail
    kill_zygote: Callable[[], None]
    zygote_pid: int | None = None
    pid: int | None = None
    exit: RunnerExit | None = None
    frames_open: bool = True
    _frames: bytearray = field(default_factory=bytearray)
    _status: bytes = b""

    def read_frames(self) -> list[AnyFrame] | None:
        """The frames that have arrived; None if there is no data now. Skips lines that aren't frames."""
        try:
            data = os.read(self.frames_fd, _READ_BYTES)
        except BlockingIOError:
            return None
        if not data:
            self.frames_open = False
            return None
        self._frames += data
        lines = self._frames.split(b"\n") if b"\n" in data else [self._frames]
        self._frames = bytearray() if len(lines[-1]) > _LINE_BYTES else lines[-1]
        return [frame for line in lines[:-1] if (frame := _parse_frame(line)) is not None]

    def read_status(self) -> None:
        """Read the zygote's status messages; sets `pid`, then `exit`."""
        data = os.read(self.status_fd, _READ_BYTES)
        *lines, self._status = (self._status + data).split(b"\n")
        for line in lines:
            self._learn(json.loads(line))
        if not data and self.exit is None:
            began = self.pid is not None
            self.exit = RunnerExit(lost=True, refused=None if began else "the zygote died before it forked the runner")

    def _learn(self, word: dict[str, int | str]) -> None:
        if "pid" in word:
            self.pid = int(word["pid"])
        elif "refused" in word:
            self.exit = RunnerExit(refused=str(word["refused"]), passing=bool(word.get("passing")))
        else:
            code = os.waitstatus_to_exitcode(int(word["status"]))
            self.exit = RunnerExit(signal=-code) if code < 0 else RunnerExit(code=code)

    def send(self, number: signal.Signals) -> None:
        """Signal the runner's process group. If the runner hasn't started, end its zygote instead."""
        if self.exit is not None:
            return
        if self.pid is None:
            self.kill_zygote()
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def give_up(self) -> None:
        """End the zygote, because KILL doesn't end the runner or the zygote doesn't report the runner's end."""
        if self.exit is None:
            self.kill_zygote()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.send(signal.SIGKILL)  # only needed after an exception
        for fd in (self.frames_fd, self.status_fd):
            os.close(fd)
        self.log.close()


def _parse_frame(line: bytes | bytearray) -> AnyFrame | None:
    try:
        return runner_protocol.FRAME.validate_json(line)
    except ValueError:
        return None


# The framework whose zygote starts before the first job. Any other zygote starts with the first job of its framework.
DEFAULT_FRAMEWORK = next(iter(installed_frameworks()), "tensorflow")

# -P keeps the working directory out of sys.path; faulthandler writes the Python stack of a crash to the log.
_RUNNER = ["-P", "-X", "faulthandler", "-m", "dyno.bench.runner"]
_RUNNER += ["--request-fd", str(REQUEST_FD), "--frames-fd", str(FRAMES_FD)]

_KILLED_WITHIN_S = 2.0  # maximum wait; a process that survives KILL for longer hangs in the kernel


class Launcher:
    """Starts the runners of a worker, one at a time. Call it from one thread at a time.

    `worker_start`: "spawn" never forks, "fork" always forks, "auto" forks until `fall_back` is called for a framework.
    `cgroup`: the runners' cgroup, which `close` removes. `variables` replace the worker's variables in the runners'
    environment. `passed`: names of further variables that runners get from the worker, as in DYNO_RUNNER_ENV.
    """

    def __init__(
        self,
        worker_start: str,
        cores: Sequence[int],
        cgroup: Cgroup | None = None,
        variables: Mapping[str, str] | None = None,
        passed: Sequence[str] = (),
    ) -> None:
        self.cgroup = cgroup or Cgroup()
        self._variables = dict(variables or {})
        self._passed = passed
        self._worker_start = worker_start
        self._cores = cores
        self._zygotes: dict[str | None, ZygoteProcess] = {}
        self._reasons: dict[str, str] = {}  # framework -> why its runners are spawned
        self._prove: Callable[[str], None] | None = None
        self._proven: set[str] = set()
        # A single thread that lives until shutdown; see the module docstring.
        self._starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="process-starter")

    def forks(self, framework: str) -> tuple[bool, str | None]:
        """Whether runners of this framework are forked; if not, also the reason."""
        if self._worker_start == "spawn":
            return False, "settings: worker_start is spawn"
        reason = self._reasons.get(framework)
        return reason is None, reason

    def prove_with(self, prove: Callable[[str], None], proven: str) -> None:
        """Call `prove(framework)` once for each framework except `proven`, before its first runner is forked.

        `prove` starts a runner of the framework, and calls `fall_back` if the runner fails.
        """
        self._prove = prove
        self._proven.add(proven)

    def fall_back(self, framework: str, reason: str) -> bool:
        """Spawn this framework's runners from now on. Returns False if the settings require forking."""
        if self._worker_start == "fork":
            return False
        self._reasons.setdefault(framework, reason)
        self._drop(framework)
        return True

    def describe(self, device: Device) -> Device:
        """`device` with the way in which runners of the default framework start."""
        forks, reason = self.forks(DEFAULT_FRAMEWORK)
        return device.model_copy(update={"started_with": "fork" if forks else "spawn", "started_with_reason": reason})

    def prepare(self, framework: str) -> None:
        """Start the zygote early, so that the first job needn't wait for the import. Doesn't wait for the import."""
        self._zygote(framework if self.forks(framework)[0] else None)

    def start(self, request: runner_protocol.RunRequest) -> RunnerProcess:
        """Start a runner for the request. Its status reports when it has started, or why it hasn't.

        Returns at once, unless the framework needs a self-test first.
        """
        framework = request.spec.framework
        if request.spec.measure.cold_start or not self._forks_proven(framework):
            spawned = request.model_copy(update={"process_start": "spawned"})
            return self.spawn(_RUNNER, spawned.model_dump_json().encode())
        forked = request.model_copy(update={"process_start": "forked"})
        return self._launch(framework, None, forked.model_dump_json().encode())

    def spawn(self, arguments: list[str], request: bytes) -> RunnerProcess:
        """Start a new interpreter with `arguments`. It reads `request` from REQUEST_FD, writes frames to FRAMES_FD."""
        return self._launch(None, arguments, request)

    def run(self, module: str, arguments: Sequence[str], timeout_s: float) -> str:
        """Run `python -P -m module --parent <pid> arguments…` and return its stdout.

        Raises OSError, or subprocess.SubprocessError with the last line of stderr. Kills the process after `timeout_s`.
        The module needs `--parent` for `dyno.processes.die_with_parent`.
        """
        command = [sys.executable, "-P", "-m", module, "--parent", str(os.getpid()), *arguments]
        process = self._starter.submit(
            subprocess.Popen,
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        ).result()
        try:
            printed, complaints = process.communicate(timeout=timeout_s)
        except BaseException:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_KILLED_WITHIN_S)
            raise
        finally:
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        if process.returncode != 0:
            last = complaints.strip().rpartition("\n")[2]
            raise subprocess.SubprocessError(f"{module} failed with exit code {process.returncode}: {last}")
        return printed

    def close(self) -> None:
        """End the zygotes, and every runner with them."""
        for framework in list(self._zygotes):
            self._drop(framework)
        self._starter.shutdown()
        self.cgroup.close()

    def _forks_proven(self, framework: str) -> bool:
        if self._prove is not None and self.forks(framework)[0] and framework not in self._proven:
            self._proven.add(framework)
            self._prove(framework)
        return self.forks(framework)[0]

    def _launch(self, framework: str | None, argv: list[str] | None, request: bytes) -> RunnerProcess:
        frames_read, frames_write = os.pipe2(os.O_CLOEXEC)
        status_read, status_write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(frames_read, False)
        log = LogTail()
        request_fd = _file_of(request)
        child_fds = [frames_write, log.write_fd, request_fd, status_write]
        zygote_pid = None
        for _ in range(2):  # the zygote may have died since the last check: retry once with a new zygote
            try:
                zygote = self._zygote(framework)
                zygote.ask(argv, child_fds)
                zygote_pid = zygote.pid
                break
            except (BrokenPipeError, ConnectionResetError):
                self._drop(framework)
        for fd in child_fds:  # without a zygote, this closes the status pipe, which reports the failure
            os.close(fd)
        start: Literal["forked", "spawned"] = "spawned" if framework is None else "forked"
        return RunnerProcess(start, frames_read, status_read, log, lambda: self._drop(framework), zygote_pid)

    def _zygote(self, framework: str | None) -> ZygoteProcess:
        zygote = self._zygotes.get(framework)
        if zygote is not None and (obituary := zygote.obituary()) is not None:
            event("zygote-died", logging.WARNING, framework=framework, pid=zygote.pid, how=obituary)
            self._drop(framework)
            zygote = None
        if zygote is None:
            start = partial(ZygoteProcess, framework, self._cores, self.cgroup.doors, self._environment(framework))
            zygote = self._starter.submit(start).result()
            self._zygotes[framework] = zygote
        return zygote

    def _environment(self, framework: str | None) -> dict[str, str]:
        backend = {} if framework is None else {"KERAS_BACKEND": framework}
        return runner_environment(os.environ, self._passed) | backend | self._variables

    def _drop(self, framework: str | None) -> None:
        zygote = self._zygotes.pop(framework, None)
        if zygote is not None:
            zygote.end()


def _file_of(data: bytes) -> int:
    """`data` as an open anonymous file: unlike a pipe, it holds any amount of data without a reader."""
    fd = os.memfd_create("request", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


_VARIABLES = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TZDIR", "TMPDIR", "TMP", "TEMP"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "MPLCONFIGDIR", "MPLBACKEND"),
        *("LD_LIBRARY_PATH", "GLIBC_TUNABLES", "NPROC", "CC", "CXX"),  # PyTorch compiles with CC and CXX
        *("SSL_CERT_FILE", "SSL_CERT_DIR"),  # for downloads of data sets
        *("DYNO_DATA_DIR", "DYNO_DOWNLOAD", "DYNO_RUN_DIR", "DYNO_WORKLOADS_DIR"),
        *FLAGS,  # the flags that a result records must also reach its runs
    )
)
_PREFIXES = (
    *("LC_", "PYTHON", "MALLOC_"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "ONEDNN_", "DNNL_", "NUMBA_", "NUMEXPR_"),
    *("TF_", "KERAS_", "XLA_", "JAX_", "PJRT_", "LIBTPU_", "TPU_", "TORCH", "PYTORCH_", "TRITON_"),
    *("CUDA_", "CUDNN_", "CUBLAS_", "CUBLASLT_", "NVIDIA_", "NCCL_"),
)
# Terraform's variables begin like TensorFlow's, and NVIDIA_API_KEY begins like the driver's variables.
_SECRET = re.compile(
    r"^TF_(VAR|CLI)_|(^|_)(PASSWORD|PASSWD|PWD|SECRETS?|TOKENS?|CREDENTIALS?|HEADERS|(API|ACCESS|PRIVATE)?KEYS?)(_|$)",
    re.IGNORECASE,
)
_PROXY = re.compile(r"(https?|all|no)_proxy", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"://[^/\s]*@")


def runner_environment(environ: Mapping[str, str], passed: Iterable[str] = ()) -> dict[str, str]:
    """The variables of `environ` that runners get.

    `passed`: further names, or prefixes that end with "*". They can't name settings of Dyno.
    """
    allowed = re.compile("|".join(_pattern(name) for name in passed) or r"(?!)")
    return {
        name: value
        for name, value in environ.items()
        if _needed(name, value) or (allowed.fullmatch(name) and not name.startswith("DYNO_"))
    }


def _pattern(name: str) -> str:
    return re.escape(name.removesuffix("*")) + (".*" if name.endswith("*") else "")


def _needed(name: str, value: str) -> bool:
    if _PROXY.fullmatch(name):
        return "@" not in value  # a proxy's URL may contain a password
    if name in _VARIABLES:
        return True
    return name.startswith(_PREFIXES) and not (_SECRET.search(name) or _PASSWORD_IN_URL.search(value))
