"""Train a decoder-only language model, fill its cache with a prompt (prefill), or generate a token at a time (decode).

Weights start random; training reads Tiny Shakespeare, whose characters are bytes, and learns the next character. FLOP,
multiply-add = 2, with W weights in a block's products, V the vocabulary, d the width, h heads of size s, L blocks:

- forward pass of T tokens with logits for n of them: 2·(T·L·W + n·V·d) + 4·L·h·s·T·(T + 1)/2. The last term is causal
  attention; a kernel that also computes the masked half executes more.
- training: three times the forward pass (Chowdhery et al. 2022, "PaLM", appendix B), so `peak.fraction` is the model
  FLOP utilisation.
- decode: 2·(L·W + V·d) + 4·L·h·s·C for a token that attends to C tokens.

With `weight_dtype` "int8", prefill and decode keep the weights of the products in int8, with a scale for each output,
and convert them back in each product. This saves time only if the framework converts while it multiplies. Otherwise it
first writes the converted weights to memory.

A step of decode reads all weights once, and the keys and values of each sequence. A larger batch shares the weights
among more tokens, but not the cache. So memory is the limit of small batches, and of every batch at a long context,
where reading the cache takes longer than computing with it. `roofs` shows which limit binds.

A decode execution is one step at the last position of the context, with the token that the step before chose; each step
is a call from the host. Prefill and decode include choosing the most likely token. The cache has a static shape, so
nothing is traced again.
"""

from collections.abc import Sequence
from typing import Any

from dyno.bench import contract
from dyno.bench.datasets import shakespeare
from dyno.bench.frameworks.interface import JitCompile
from dyno.bench.frameworks.keras import dtype_policy
from dyno.bench.training import workload
from dyno.bench.training.model_training import ModelTraining, Plan
from dyno.bench.training.text import judge, nats_of_logits, parts
from dyno.bench.workloads import _decoder as decoder
from dyno.bench.workloads import _transformer_params as costs
from dyno.bench.workloads._generation import Decode, Prefill
from dyno.bench.workloads._transformer_params import TransformerParams
from dyno.settings import Settings

_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


def new_model(keras: Any, params: TransformerParams, jit_compile: JitCompile) -> Any:
    """A model with new weights, compiled for training."""
    with dtype_policy(keras, _POLICIES[params.precision]):
        model = decoder.sequence_model(keras, decoder.new_decoder(keras, params.sizes, params.context), params.context)
    model.compile(
        optimizer=workload.new_optimizer(keras, params.optimizer, params.learning_rate),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True, name="sparse_categorical_crossentropy"),
        metrics=["accuracy"],
        jit_compile=jit_compile,
    )
    return model


def plan(params: TransformerParams, context: contract.BuildContext) -> Plan:
    with context.phase("data"):
        text = shakespeare.load(Settings(data_dir=context.data_dir), params.data)
    train, validation, test = parts(text, params.validation_share, params.context, costs.TESTED)
    keras = context.framework.keras
    return Plan(
        make=lambda jit_compile: new_model(keras, params, jit_compile),
        train=train,
        validation=validation,
        data=text.origin,
        params={"data": text.origin.kind},
        judge=lambda model, trainer: judge(text, test, trainer, nats_of_logits, context.report),
        steps_per_epoch=params.steps_per_epoch,
        amounts={"token": 1 / params.context},
        flops_per_sample=costs.flops_per_sample(params),
    )


class _Training(ModelTraining):
    def __init__(self, params: TransformerParams, context: contract.BuildContext) -> None:
        super().__init__(params, plan(params, context), context)
        samples = costs.sample_counts(params).execution
        self._masked_flops = 3 * samples * costs.masked_flops(params.sizes, params.context)

    def counted_flops(self) -> float | None:
        """Without the masked half of the attention, which frameworks count."""
        counted = super().counted_flops()
        return None if counted is None else counted - self._masked_flops


def build(params: TransformerParams, context: contract.BuildContext) -> contract.Built:
    if params.mode == "train":
        return _Training(params, context)
    return (Prefill if params.mode == "prefill" else Decode)(params, context)


_RATE = contract.MetricSpec("token_rate", "tokens/s", "higher", "Tokens per second, of all sequences", amount="token")
_METRICS: dict[costs.Mode, Sequence[contract.MetricSpec]] = {
    "train": (
        *workload.TRAINING_METRICS,
        contract.MetricSpec("step_time", "s", "lower", "Time of a training step", amount="step"),
        _RATE,
    ),
    "prefill": (
        contract.MetricSpec(
            "time_to_first_token",
            "s",
            "lower",
            "Time to read the prompts of all sequences, and to choose their first tokens",
            amount="request",
        ),
        _RATE,
        *contract.LATENCIES,
    ),
    "decode": (
        contract.MetricSpec(
            "time_per_output_token", "s", "lower", "Time of a step at the last position of the context", amount="step"
        ),
        _RATE,
        *contract.LATENCIES,
    ),
}

WORKLOAD = contract.Workload(
    name="transformer",
    description="A decoder-only language model: training steps, reading a prompt, or a token at a time",
    params=TransformerParams,
    metrics=tuple({spec.name: spec for specs in _METRICS.values() for spec in specs}.values()),
    metrics_of=lambda params: tuple(_METRICS[params.mode]),
    flops=costs.flops,
    estimate=costs.estimate,
    build=build,
    refuses=costs.refuses,
    lint=costs.lint,
    datasets=("shakespeare",),
    replicable=True,
    smoke=contract.Smoke(
        {"preset": "tiny", "batch_size": 2, "context": 16, "steps_per_epoch": 2, "epochs": 1, "jit_compile": False},
        details=frozenset({"weights"}),
    ),
    bench={"batch_size": 8, "epochs": 2, "steps_per_epoch": 50},
    options="training, prefill or decode; sizes from 0.8 M to 8 G weights; three precisions, int8 weights",
)
