"""The params of `transformer`, and what a job with them costs."""

from dataclasses import asdict
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from dyno.bench import contract, estimates
from dyno.bench.datasets import shakespeare
from dyno.bench.datasets.loading import SAMPLED, DataKind
from dyno.bench.training import cost, text, workload
from dyno.bench.workloads import _decoder as decoder
from dyno.errors import FieldError
from dyno.models.device import Device
from dyno.models.result import ResultWarning
from dyno.models.spec import FrameworkName

Preset = Literal["tiny", "small", "gpt2-124m", "llama-1b", "llama-8b"]
Mode = Literal["train", "prefill", "decode"]
Dtype = Literal["float32", "bfloat16", "float16"]

_DEFAULTS: dict[Mode, dict[str, int]] = {
    "train": {"batch_size": 4, "context": 64},
    "prefill": {"batch_size": 1, "context": 256},
    "decode": {"batch_size": 1, "context": 512},
}
_ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
Width = Annotated[int, Field(ge=1, le=1 << 18)]


class TransformerParams(workload.TrainingParams):
    untimed: ClassVar[frozenset[str]] = workload.TrainingParams.untimed | {"rate_per_s"}

    mode: Mode = Field("train", description="train; prefill: read a prompt; decode: one further token at a time")
    preset: Preset = Field("small", description="Sizes of the model; a size that is given replaces the preset's")
    layers: Annotated[int, Field(ge=1, le=1024)] | None = None
    width: Width | None = None
    heads: Annotated[int, Field(ge=1, le=1024)] | None = None
    kv_heads: Annotated[int, Field(ge=1, le=1024)] | None = Field(None, description="Heads of keys and values")
    head_dim: Annotated[int, Field(ge=2, le=1024, multiple_of=2)] | None = None
    feed_forward: Width | None = None
    vocabulary: Annotated[int, Field(ge=256, le=1 << 20)] | None = Field(None, description="The text has 256 bytes")
    tied: bool | None = Field(None, description="Whether the output projection is the transposed embedding")
    batch_size: Annotated[int, Field(ge=1, le=65536)] = Field(
        4, description="Sequences, in total over all replicas; default: 4 per replica to train, else 1"
    )
    context: Annotated[int, Field(ge=2, le=1 << 20)] = Field(
        64, description="Tokens of a sequence; default: 64 to train, a prompt of 256, a cache of 512"
    )
    precision: Dtype = Field("float32", description="Of the products; training keeps float32 weights")
    weight_dtype: Literal["int8"] | None = Field(
        None, description="Of the products' weights in memory, for prefill and decode; null: as `precision`"
    )
    steps_per_epoch: Annotated[int, Field(ge=1, le=10_000)] = 100
    data: DataKind = Field("auto", description=SAMPLED)
    rate_per_s: contract.RatePerS | None = Field(None, description=f"{contract.RATE}. For prefill and decode")

    def fitted(self, replicas: int) -> dict[str, object]:
        defaults = _DEFAULTS[self.mode] | ({"batch_size": 4 * replicas} if self.mode == "train" else {})
        return {name: value for name, value in defaults.items() if name not in self.model_fields_set}

    @property
    def sizes(self) -> decoder.DecoderSizes:
        fields = asdict(decoder.PRESETS[self.preset])
        return decoder.DecoderSizes(
            **{name: value if (given := getattr(self, name, None)) is None else given for name, value in fields.items()}
        )

    @property
    def dtype(self) -> Dtype:
        """The dtype of the products."""
        return self.precision

    @property
    def replicable(self) -> bool:
        return self.mode == "train"

    @property
    def epoch_steps(self) -> int:
        return self.steps_per_epoch

    def conflicts(self) -> list[FieldError]:
        errors, sizes = [], self.sizes
        if sizes.heads % sizes.kv_heads:
            detail = f"{sizes.heads} heads can't share {sizes.kv_heads} heads of keys and values evenly"
            errors.append(FieldError("/heads" if self.kv_heads is None else "/kv_heads", "not-divisible", detail))
        if sizes.learned_positions is not None and self.context > sizes.learned_positions:
            detail = f"the preset has {sizes.learned_positions} learned positions"
            errors.append(FieldError("/context", "too-long", detail))
        return [*errors, *(self._of_training() if self.mode == "train" else self._of_generation())]

    def _of_generation(self) -> list[FieldError]:
        why = f'mode is "{self.mode}"'
        errors = self.only_training(why, "steps_per_epoch")
        if self.weight_dtype == "int8" and self.precision == "float16":
            detail = "Keras has no int8 weights for float16: use bfloat16 or float32"
            errors.append(FieldError("/weight_dtype", "dtype_unsupported", detail))
        if self.train == "full" and not errors:
            errors.append(FieldError("/train", "nothing-trained", f"{why}, so the job doesn't train"))
        return errors

    def _of_training(self) -> list[FieldError]:
        errors = []
        if self.weight_dtype is not None:
            errors.append(
                FieldError("/weight_dtype", "not-trainable", "integers can't be trained: leave this field out")
            )
        if self.rate_per_s is not None:
            detail = 'with the mode "train", no calls are timed: leave this field out'
            errors.append(FieldError("/rate_per_s", "no-calls", detail))
        most = shakespeare.CHARACTERS - shakespeare.TRAIN_CHARACTERS - 1
        if self.context > most:
            errors.append(FieldError("/context", "too-long", f"the held-out text has windows of at most {most}"))
        return [*errors, *text.too_few_characters(self.validation_share, self.context), *super().conflicts()]


def flops(params: TransformerParams) -> float:
    """FLOP of one execution: training steps, a prompt for each sequence, or one token for each sequence."""
    sizes, batch = params.sizes, params.batch_size
    if params.mode == "train":
        return flops_per_sample(params) * sample_counts(params).execution
    if params.mode == "prefill":
        return batch * sizes.forward_flops(params.context, 1)
    return batch * sizes.decode_flops(params.context)


def masked_flops(sizes: decoder.DecoderSizes, tokens: int) -> float:
    """FLOP that a causal sequence doesn't need: of pairs of a token and a later token."""
    return sizes.attention_flops(tokens * (tokens - 1) / 2)


def flops_per_sample(params: TransformerParams) -> float:
    return 3 * params.sizes.forward_flops(params.context, params.context)


def traffic_bytes(params: TransformerParams) -> float:
    """The compulsory traffic of a prefill or decode: weights, cache and logits. The token ids are negligible."""
    sizes, item = params.sizes, _ITEM_BYTES[params.precision]
    tokens = params.context if params.mode == "prefill" else params.context + 1  # read, and one written
    weights = sizes.read_weights * item
    if params.weight_dtype is not None:
        rounded, scales = sizes.rounded
        weights += rounded * (1 - item) + scales * item
    cache = params.batch_size * sizes.cache_elements(tokens) * item
    return float(weights + cache + 4 * params.batch_size * sizes.vocabulary)


def sample_counts(params: TransformerParams) -> cost.SampleCounts:
    return cost.counts_of_steps(
        params, params.steps_per_epoch, text.validated_characters(params.validation_share) // params.context, TESTED
    )


TESTED = 64  # held-out windows at most
COMPARED = 4  # sequences of a batch at most, in the verification of prefill and decode

# To build and compile the model, and each block. Measured for 8 blocks: training 9 s (TensorFlow) and 4 s (JAX),
# prefill and decode 1.4 to 5 s.
_START_S: dict[Mode, tuple[float, float]] = {"train": (4.0, 0.5), "prefill": (1.5, 0.3), "decode": (1.5, 0.3)}
_REACHED, _REACHED_EAGERLY = 0.4, 0.2  # shares of the peak; the second without compilation
_ASSUMED_FLOP_PER_S = {"cpu": 3e10, "gpu": 1e13, "tpu": 1e13}  # per CPU core, per accelerator
_ASSUMED_BYTES_PER_S = {"cpu": 1e10, "gpu": 3e11, "tpu": 3e11}
_STEP_S = {"cpu": 2e-3, "gpu": 5e-4, "tpu": 5e-4}  # to start the operations of a step
_TRAINED_BYTES = 4 * 8  # per weight: see `training.cost`, and a second model while TensorFlow chooses `jit_compile`
_TRAINED_ACTIVATIONS = 3  # per activation, with its gradient


def estimate(
    params: TransformerParams, device: Device, replicas: int = 1, framework: FrameworkName = "tensorflow"
) -> contract.Estimate:
    counts, step = sample_counts(params), _estimated_step(params, device, replicas)
    full = params.mode == "train" and params.train == "full"
    build_s, block_s = _START_S[params.mode]
    execution_s = step.time_s * (counts.steps if params.mode == "train" else 1)
    return contract.Estimate(
        start_s=build_s
        + block_s * params.sizes.layers
        + _compared_s(params, device)
        + estimates.replicas_s(device, replicas)
        + 2 * execution_s,
        memory_bytes=estimates.held_bytes(
            device, replicas, once=0, per_replica=_weights_bytes(params), shared=_activations_bytes(params)
        ),
        train_s=counts.in_all(params) / counts.batch * step.time_s if full else 0.0,
        executions_s=(execution_s,),
    )


def _compared_s(params: TransformerParams, device: Device) -> float:
    """Time of sequences without a cache: to fill the cache of decode, and to verify."""
    if params.mode == "train":
        return 0.0
    sequences = min(params.batch_size, COMPARED) * (2 if params.mode == "decode" else 1)
    sequences += 0 if params.weight_dtype is None else 2
    rate = estimates.rate_flop_per_s(device, params.precision, _REACHED_EAGERLY, _ASSUMED_FLOP_PER_S)
    return sequences * params.sizes.forward_flops(params.context, 1) / rate


def _weights_bytes(params: TransformerParams) -> int:
    held = _TRAINED_BYTES if params.mode == "train" else 2 * _ITEM_BYTES[params.precision]
    return params.sizes.weights * held


def _activations_bytes(params: TransformerParams) -> int:
    """Of a step. Prefill holds those of two blocks; verification and decode's start run one sequence at a time.

    The cache exists up to three times, before and after a step and in float32 on the host; logits in float64, too.
    """
    sizes, tokens = params.sizes, params.batch_size * params.context
    per_token = 4 * (8 * sizes.width + 3 * sizes.feed_forward + 2 * sizes.heads * params.context)
    if params.mode == "train":
        return tokens * (sizes.layers * per_token * _TRAINED_ACTIVATIONS + 4 * 3 * sizes.vocabulary)
    cache = (2 * _ITEM_BYTES[params.precision] + 4) * params.batch_size * sizes.cache_elements(params.context)
    at_once = tokens if params.mode == "prefill" else params.context
    return cache + at_once * 2 * per_token + 24 * params.batch_size * sizes.vocabulary


def _estimated_step(params: TransformerParams, device: Device, replicas: int) -> estimates.StepCost:
    rate = estimates.rate_flop_per_s(device, params.precision, _REACHED, _ASSUMED_FLOP_PER_S)
    work_s = flops(params) / (rate * estimates.speed_up(device, replicas))
    if params.mode == "train":
        work_s /= sample_counts(params).steps
    else:
        memory = device.memory_bandwidth
        work_s = max(
            work_s, traffic_bytes(params) / ((memory and memory.value) or _ASSUMED_BYTES_PER_S[device.driven_as])
        )
    touched = traffic_bytes(params) if params.mode == "decode" else _weights_bytes(params) + _activations_bytes(params)
    return estimates.StepCost(work_s, _STEP_S[device.driven_as], int(touched))


def refuses(params: TransformerParams, device: Device) -> list[FieldError]:
    """Refuses float16 on CPUs. JAX has no kernel for its attention, and TensorFlow adds up too many roundings."""
    if params.precision != "float16" or device.driven_as != "cpu":
        return []
    detail = "attention in float16 needs an accelerator; on a CPU use bfloat16 or float32"
    return [FieldError("/precision", "dtype_unsupported", detail)]


def lint(params: TransformerParams, device: Device | None = None, replicas: int = 1) -> list[ResultWarning]:
    kind: DataKind = "real" if params.data == "sample" else params.data
    warnings = estimates.data_warnings(kind) if params.mode == "train" else []
    if device is not None:
        widths = {"width": params.sizes.width, "feed_forward": params.sizes.feed_forward}
        warnings += estimates.step_warnings(_estimated_step(params, device, replicas), device, widths)
    return warnings
