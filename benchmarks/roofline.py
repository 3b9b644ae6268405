"""What limits each workload on this machine, memory or computing? Writes roofline.md and roofline.svg."""

from __future__ import annotations

from benchmarks.report import RESULTS, prose, table, write
from dyno.bench.bench import Bench
from dyno.charts.roofline import RooflineWork, roofline, works_of
from dyno.errors import DynoError
from dyno.formatting import format_quantity, percent

BUDGET_S = 5
SPECS: dict[str, dict[str, object]] = {
    "matmul n = 1024": {"workload": "matmul", "params": {"n": 1024, "repeats": 10}},
    "memory_bandwidth": {"workload": "memory_bandwidth"},
    "operators": {"workload": "operators", "framework": "jax"},
    "transformer train": {"workload": "transformer", "framework": "jax"},
    "transformer prefill": {"workload": "transformer", "framework": "jax", "params": {"mode": "prefill"}},
    "transformer decode": {"workload": "transformer", "framework": "jax", "params": {"mode": "decode"}},
    "mnist_cnn": {"workload": "mnist_cnn"},
    "fashion_mnist_cnn": {"workload": "fashion_mnist_cnn"},
    "cifar10_cnn": {"workload": "cifar10_cnn"},
    "imdb_lstm": {"workload": "imdb_lstm"},
    "shakespeare_lstm": {"workload": "shakespeare_lstm"},
    "weather_gru": {"workload": "weather_gru", "params": {"window": 168, "jit_compile": False}},
    "resnet50 train": {"workload": "resnet50", "params": {"batch_size": 8, "jit_compile": False}},
    "resnet50 inference": {"workload": "resnet50", "params": {"mode": "inference", "batch_size": 8}},
    "quantized_inference": {"workload": "quantized_inference"},
    "input_pipeline": {"workload": "input_pipeline"},
}
METHOD = """One job of each workload with a budget of {budget_s} s, with its default params except for those that
    are named (`resnet50`: batch 8; `weather_gru`: a week), in TensorFlow, and in JAX for `operators` and
    `transformer`. *FLOP/byte*: FLOP divided by the compulsory memory traffic. *Reached*: the share of the limit.
    Work whose data stay in caches may exceed the limit of the memory. `device_info` measures nothing."""


def main() -> None:
    works: list[RooflineWork] = []
    with Bench("cpu") as bench:
        for name, spec in SPECS.items():
            try:
                result = bench.run({**spec, "measure": {"budget_s": BUDGET_S}})  # type: ignore[dict-item]
            except DynoError as error:
                print(f"{name}: {error}", flush=True)
                continue
            works += works_of(result, name)
            print(*(work.in_words for work in works[-len(result.roofs) :]), sep="\n", flush=True)
    rows = [_row(work) for work in works]
    picture = roofline("Roofline of this machine", works)
    lines = prose(METHOD.format(budget_s=BUDGET_S))
    if picture is not None:
        (RESULTS / "roofline.svg").write_text(picture.svg() + "\n")
        lines += ["![Each workload under the limits of this machine](roofline.svg)", ""]
    head = ("work", "FLOP/byte", "limit", "reached", "verdict")
    write("roofline", "What limits each workload", [*lines, *table(head, rows)])


def _row(work: RooflineWork) -> list[str]:
    roof = work.roof
    intensity = "" if roof.intensity is None else f"{roof.intensity:.3g}"
    if roof.binds is None or roof.fraction is None:
        return [work.name, intensity, roof.reason or "", "", str(work.verdict)]
    limit = f"{roof.binds}, {format_quantity(roof.value, roof.unit or '')}"
    return [work.name, intensity, limit, percent(roof.fraction), str(work.verdict)]


if __name__ == "__main__":
    main()
