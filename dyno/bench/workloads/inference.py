"""Serve a model in MLPerf's scenarios: one query at a time, several at once, as many as possible, or at random.

- `single_stream`: a query of one sample follows the answer to the query before. Latency: p50, p90 and p99.
- `multi_stream`: the same with queries of 8 samples.
- `offline`: all samples are there at once; throughput at the batch size that the first run finds fastest.
- `server`: queries of one sample arrive at random (Poisson). `served_rate` is the highest rate at which 99 % of them
  are answered within `limit_ms`, counted from their arrival. A server that is free answers all waiting queries as one
  batch, of at most `max_batch`. With `max_wait_ms`, the first query of a batch waits for others.

The names are those of MLPerf Inference (Reddi et al. 2020). Unlike its LoadGen, Dyno finds the rate of `server` by
simulating the queue with measured service times, and then serves at this rate for real (`dyno.bench.measure.serving`).

Its streams have no open loop; Dyno's also have `latency_open_p50` and so on, at `rate_per_s`.

Weights and images are random. Images stay on the device, so no transfer is part of a call. A batch is filled up to the
next power of two or to `max_batch`, the sizes that the model is compiled for.
"""

import math
import time
from statistics import fmean, median
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from dyno.bench import contract, estimates
from dyno.bench.frameworks.keras import dtype_policy
from dyno.bench.measure import latency, serving
from dyno.bench.measure.warnings import warning
from dyno.bench.training.step_checks import CheckedTraining, observe_precision
from dyno.bench.workloads._forward import Inference
from dyno.bench.workloads._served_models import MODELS, BuiltInModel, ModelName
from dyno.errors import FieldError, RunFailed
from dyno.formatting import format_quantity
from dyno.models.device import Device
from dyno.models.result import ResultWarning
from dyno.models.spec import FrameworkName

Scenario = Literal["single_stream", "multi_stream", "offline", "server"]
Precision = Literal["float32", "bfloat16", "float16"]
_STREAM_SAMPLES = 8  # of a query of `multi_stream`: MLPerf Inference, edge
_DEFAULT_LIMIT_MS = 100.0
_MOST_SAMPLES = 256


class InferenceParams(contract.Params):
    untimed: ClassVar[frozenset[str]] = frozenset({"rate_per_s", "limit_ms", "max_wait_ms"})
    how: ClassVar[frozenset[str]] = frozenset({"jit_compile"})

    scenario: Scenario = Field("single_stream", description="As in MLPerf Inference")
    model: ModelName = Field("mnist_cnn", description="The network, with random weights")
    precision: Precision = Field("float32", description="Of the products; weights stay float32")
    batch_size: Annotated[int, Field(ge=1, le=4096)] | None = Field(
        None, description="Of `offline`; null: the fastest power of two up to 256"
    )
    limit_ms: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        None, description=f"Of `server`: for 99 % of the queries; null: {_DEFAULT_LIMIT_MS:g}"
    )
    max_batch: Annotated[int, Field(ge=1, le=_MOST_SAMPLES)] | None = Field(
        None, description="Of `server`: queries answered at once, at most; null: 8"
    )
    max_wait_ms: Annotated[float, Field(ge=0, le=1e4)] | None = Field(
        None, description="Of `server`: how long the first query of a batch waits for others; null: 0"
    )
    rate_per_s: contract.RatePerS | None = Field(None, description=f"{contract.RATE}. For the streams")
    jit_compile: bool = Field(False, description="Compile with XLA on TensorFlow; JAX always does, PyTorch never")

    def conflicts(self) -> list[FieldError]:
        scenarios_of = {
            "batch_size": ("offline",),
            **dict.fromkeys(("limit_ms", "max_batch", "max_wait_ms"), ("server",)),
            "rate_per_s": ("single_stream", "multi_stream"),
        }
        errors = [
            FieldError(f"/{name}", "not-in-scenario", f'the scenario is "{self.scenario}": leave this field out')
            for name, scenarios in scenarios_of.items()
            if getattr(self, name) is not None and self.scenario not in scenarios
        ]
        if not errors and (self.max_wait_ms or 0) >= self.limit_in_use_ms:
            detail = f"must be shorter than the limit of {self.limit_in_use_ms:g} ms"
            errors.append(FieldError("/max_wait_ms", "too-long", detail))
        return errors

    @property
    def dtype(self) -> str:
        """The dtype of the products."""
        return self.precision

    @property
    def built_in(self) -> BuiltInModel:
        return MODELS[self.model]

    @property
    def limit_in_use_ms(self) -> float:
        return self.limit_ms or _DEFAULT_LIMIT_MS

    @property
    def batching(self) -> serving.Batching:
        return serving.Batching(self.max_batch or 8, (self.max_wait_ms or 0.0) / 1000)

    @property
    def batch(self) -> int:
        """The samples of an execution; of `offline` without a batch size, those of the first."""
        if self.scenario == "server":
            return self.batching.max_batch
        return {"single_stream": 1, "multi_stream": _STREAM_SAMPLES}.get(self.scenario, self.batch_size or 32)


def _sizes(most: int) -> list[int]:
    """The powers of two up to `most`, and `most` itself."""
    return [*(1 << power for power in range(most.bit_length()) if 1 << power < most), most]


class _Model:
    """The model, and its compiled executions by batch size."""

    def __init__(self, params: InferenceParams, context: contract.BuildContext) -> None:
        self._params, self._context = params, context
        keras = context.framework.keras
        policy = "float32" if params.precision == "float32" else f"mixed_{params.precision}"
        with context.phase("build"), dtype_policy(keras, policy):
            self._keras_model = params.built_in.make(keras)
            self._keras_model.jit_compile = params.jit_compile
        self._compiled = dict[int, Inference]()

    def of(self, size: int) -> Inference:
        """The compiled executions of one batch size."""
        if size not in self._compiled:
            images = self._params.built_in.images(size, self._context.seed)
            self._compiled[size] = Inference(self._keras_model, images, self._context)
            self._compiled[size].compile()
        return self._compiled[size]

    def verified(self, size: int) -> contract.Verification:
        """The checks of the last outputs of one batch size, and the precision of the model's operations."""
        checked, facts = self.of(size).verify(), CheckedTraining()
        observe_precision(self._context, self._keras_model, self._params.precision, facts)
        checked.precision = facts.precision
        checked.details |= facts.details
        checked.tuned |= facts.tuned
        return checked


class _Scenario:
    """One execution passes one batch through the model."""

    def __init__(self, params: InferenceParams, context: contract.BuildContext) -> None:
        self._params, self._context = params, context
        self._model, self._batch = _Model(params, context), params.batch
        self.work = float(self._batch)

    def compile(self) -> None:
        self._timed = self._model.of(self._batch)

    def execute(self, count: int) -> None:
        self._timed.execute(count)

    def complete(self, compile_s: float, first_execution_s: float) -> None:
        return None

    def counted_flops(self) -> float | None:
        return self._timed.counted_flops()

    def verify(self) -> contract.Verification:
        checked = self._model.verified(self._batch)
        checked.amounts = {"call": self.work}
        checked.flops = self._params.built_in.flops * self.work
        return checked


_BATCH = "batch_size"  # see BuildContext.tuned
_READINGS, _LONGEST_S = 3, 0.5


class _Offline(_Scenario):
    """The first run finds the batch size with the largest throughput; all runs measure it afresh."""

    def compile(self) -> None:
        tuned = self._context.tuned.get(_BATCH)
        self._tried = dict[int, float]()
        if self._params.batch_size is None:
            self._batch = tuned if isinstance(tuned, int) else self._fastest()
            self.work = float(self._batch)
        super().compile()

    def _fastest(self) -> int:
        for size in _sizes(_largest(self._params, self._context.device)):
            self._context.report("search", len(self._tried), None, "batch sizes")
            timed = self._model.of(size)
            timed.execute(1)
            began_s = time.perf_counter()
            timed.execute(_READINGS)
            call_s = (time.perf_counter() - began_s) / _READINGS
            self._tried[size] = size / call_s
            if call_s > _LONGEST_S or self._tried[size] < 0.8 * max(self._tried.values()):
                break
        return max(self._tried, key=lambda size: self._tried[size])

    def verify(self) -> contract.Verification:
        checked = super().verify()
        checked.tuned[_BATCH] = self._batch
        checked.params[_BATCH] = self._batch
        if self._tried:
            checked.details["tried"] = {str(size): rate for size, rate in self._tried.items()}
            checked.details["listing"] = [
                f"batch size {self._batch}, the fastest of {', '.join(map(str, self._tried))}"
            ]
        return checked


_CALLS, _SHARE = 3, 0.2  # calls of each batch size at least, and their part of the time for queries
_FEW = "only {} queries arrived: give a larger budget_s"


class _Server(_Scenario):
    """Also finds the highest rate within the limit. An execution is the largest batch."""

    def __init__(self, params: InferenceParams, context: contract.BuildContext) -> None:
        super().__init__(params, context)
        self._limit_s, self._sizes = params.limit_in_use_ms / 1000, _sizes(params.batching.max_batch)
        self._served_rate: serving.ServedRate | None = None

    def compile(self) -> None:
        super().compile()
        for size in self._sizes:
            self._model.of(size)

    def answer_queries(self, most_s: float, seed: int) -> None:
        """Find the rate. The first run raises RunFailed if a single call takes longer than the limit."""
        clock, loop_s = latency.HostCallClock(), _SHARE * most_s / len(self._sizes)
        services_s = {size: self._services_s(size, loop_s, clock) for size in self._sizes}
        self._served_rate = serving.find_rate(
            self._answer,
            services_s,
            self._params.batching,
            self._limit_s,
            (1 - _SHARE) * most_s,
            seed,
            clock,
            lambda: self._context.report("latency", 0, None, "queries"),
        )
        if self._served_rate is None and self._context.run == 0:
            call, limit = (format_quantity(time_s, "s") for time_s in (median(services_s[1]), self._limit_s))
            detail = f"no rate keeps the limit of {limit}: a single call takes {call}"
            raise RunFailed("unsupported", "limit_unreachable", detail)

    def _services_s(self, size: int, loop_s: float, clock: latency.CallClock) -> list[float]:
        execute, taken_s = self._model.of(size).execute, list[float]()
        execute(1)
        ends_s = clock.now_s() + loop_s
        while len(taken_s) < _CALLS or (clock.now_s() < ends_s and len(taken_s) < latency.MOST_CALLS):
            began_s = clock.now_s()
            execute(1)
            taken_s.append(clock.now_s() - began_s)
        return taken_s

    def _answer(self, size: int) -> None:
        """Answer a batch of `size` queries, filled up to a size that the model is compiled for."""
        self._model.of(next(compiled for compiled in self._sizes if compiled >= size)).execute(1)

    def verify(self) -> contract.Verification:
        checked, rate, batching = super().verify(), self._served_rate, self._params.batching
        if self._context.run == 0:  # later runs execute the same programs
            for size in self._sizes[:-1]:
                checked.warnings += self._model.verified(size).warnings
        waits_ms = 1000 * batching.max_wait_s
        checked.params |= {"limit_ms": self._params.limit_in_use_ms, "max_wait_ms": waits_ms}
        checked.params["max_batch"] = batching.max_batch
        if rate is None:
            return checked
        checked.figures |= {"served_rate": rate.rate_per_s, "late_share": rate.late}
        if rate.queries < serving.FEW_QUERIES:
            checked.unchecked["LIMIT_MISSED"] = _FEW.format(rate.queries)
        elif rate.late > rate.late_by_chance:
            checked.warnings.append(_limit_missed(rate))
        checked.details |= self._details(rate)
        return checked

    def _details(self, rate: serving.ServedRate) -> dict[str, Any]:
        """`listing` is for people."""
        p50_s, p99_s = (rate.observed_s(share) for share in (0.5, serving.WITHIN))
        named = {"p50": p50_s, "p99": p99_s, "limit": self._limit_s}
        times = [f"{name} {format_quantity(time_s, 's')}" for name, time_s in named.items() if time_s is not None]
        listing = [
            f"first run: {rate.queries} real queries at {format_quantity(rate.rate_per_s, 'queries/s')}, "
            + ", ".join(times),
            "batches: " + ", ".join(f"{count} of {size}" for size, count in rate.served.batches.items()),
        ]
        server = {
            "limit_s": self._limit_s,
            "rate_per_s": rate.rate_per_s,
            "queries": rate.queries,
            "p50_s": p50_s,
            "p99_s": p99_s,
            "late_share": rate.late,
            "late_share_by_chance": rate.late_by_chance,
            "batches": {str(size): count for size, count in rate.served.batches.items()},
            "mean_service_s": {str(size): fmean(times_s) for size, times_s in rate.services_s.items()},
            "curve": rate.curve,
        }
        return {"server": server, "listing": listing}


def _limit_missed(rate: serving.ServedRate) -> ResultWarning:
    late, by_chance = rate.late, rate.late_by_chance
    return warning("LIMIT_MISSED", rate_per_s=rate.rate_per_s, late_share=late, late_share_by_chance=by_chance)


def build(params: InferenceParams, context: contract.BuildContext) -> contract.Built:
    kinds: dict[Scenario, type[_Scenario]] = {"offline": _Offline, "server": _Server}
    return kinds.get(params.scenario, _Scenario)(params, context)


_REACHED = 0.2  # share of the peak
_ASSUMED_FLOP_PER_S = {"cpu": 2e10, "gpu": 5e12, "tpu": 5e12}  # per CPU core, per accelerator
_CALL_S = {"cpu": 1e-3, "gpu": 5e-4, "tpu": 5e-4}
_JAX = 3.0  # times as long as TensorFlow to compile
_BYTES_PER_VALUE = 400  # activations of an image, per value of the image
_OF_MEMORY = 4  # part of the device's memory for the activations of the largest batch that is tried
_SIMULATED_S = 1.5  # the simulations of a run


def _activations_bytes(params: InferenceParams, batch: int) -> int:
    return batch * math.prod(params.built_in.shape) * _BYTES_PER_VALUE


def _largest(params: InferenceParams, device: Device | None) -> int:
    """The largest batch of a run."""
    if params.scenario != "offline" or params.batch_size is not None:
        return params.batch
    if device is None:
        return _MOST_SAMPLES
    fits = device.memory_bytes // _OF_MEMORY // _activations_bytes(params, 1)
    return max(1, min(_MOST_SAMPLES, 1 << max(0, fits.bit_length() - 1)))


def estimate(
    params: InferenceParams, device: Device, replicas: int = 1, framework: FrameworkName = "tensorflow"
) -> contract.Estimate:
    model, kind, largest = params.built_in, device.driven_as, _largest(params, device)
    rate = estimates.rate_flop_per_s(device, params.precision, _REACHED, _ASSUMED_FLOP_PER_S)
    execution_s = _CALL_S[kind] + params.batch * model.flops / rate
    several = params.scenario == "server" or (params.scenario == "offline" and params.batch_size is None)
    sizes = _sizes(largest) if several else [largest]
    start_s = model.start_s * (1 + len(sizes)) / 2 * (_JAX if framework == "jax" else 1.0)
    calls_s = (1 + _CALLS) * sum(sizes) / params.batch * execution_s if several else 0.0
    simulated_s = _SIMULATED_S if params.scenario == "server" else 0.0
    return contract.Estimate(
        start_s + 2 * execution_s + calls_s + simulated_s,
        8 * model.weights + _activations_bytes(params, largest) + estimates.runtime_bytes(device),
        executions_s=(execution_s,),
    )


def flops(params: InferenceParams) -> float:
    """FLOP of one execution: the forward pass of a batch."""
    return params.built_in.flops * params.batch


def lint(params: InferenceParams, device: Device | None = None, replicas: int = 1) -> list[ResultWarning]:
    return [warning("SYNTHETIC_DATA", "Weights and images are random: only the speed is meaningful.")]


_METRICS = (
    contract.MetricSpec("throughput", "samples/s", "higher", "Samples answered per second, call after call"),
    contract.MetricSpec(
        *("latency", "s", "lower"),
        "Mean time of a call where calls follow each other without a wait for the answer: the inverse of the "
        "throughput. For the time until an answer, see `latency_closed_p50`",
        amount="call",
    ),
)
_OF_SERVER = (
    contract.MetricSpec(
        "served_rate", "queries/s", "higher", "Highest rate at which 99 % are answered within the limit", each_run=True
    ),
    contract.MetricSpec(
        "late_share", "1", "lower", "Share of the queries beyond the limit, served at this rate", each_run=True
    ),
)
_OF_SCENARIO: dict[Scenario, tuple[contract.MetricSpec, ...]] = {
    "single_stream": (*_METRICS, *contract.LATENCIES),
    "multi_stream": (*_METRICS, *contract.LATENCIES),
    "offline": _METRICS,
    "server": (*_OF_SERVER, *_METRICS),
}

WORKLOAD = contract.Workload(
    name="inference",
    description="A model that answers queries: latency, throughput, or the highest rate within a limit",
    params=InferenceParams,
    metrics=(*_METRICS, *_OF_SERVER, *contract.LATENCIES),
    metrics_of=lambda params: _OF_SCENARIO[params.scenario],
    flops=flops,
    estimate=estimate,
    build=build,
    lint=lint,
    smoke=contract.Smoke({"scenario": "server", "max_batch": 2}, details=frozenset({"server"})),
    bench={"scenario": "offline"},
    options="MLPerf's four scenarios; 7 models; dynamic batches; three precisions",
)
