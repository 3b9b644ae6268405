"""The spec of a job: what a caller may request.

`params` is an open mapping here, so clients need no workload code. The API validates `params` a second time, against
the workload's own model (`dyno.bench.workloads`).
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, Field, JsonValue, ValidationInfo, field_validator, model_validator

from dyno.webhook_url import parse_webhook_url

FrameworkName = Literal["tensorflow", "jax", "torch"]
DeviceKind = Literal["cpu", "gpu", "tpu"]
Priority = Literal["low", "normal", "high"]
MAX_REPLICAS = 64
BUDGET_S = 15.0  # how long a job measures, by default
LEAST_RUNS = 5  # results of fewer runs aren't trusted
TARGET_RUNS = 30  # default maximum number of runs, if the spec has a target
# Numbers of samples of a run that shares a budget.
SAMPLES = 10  # two windows of warm-up detection
FEW_SAMPLES = 5  # if a run has no time for more
MOST_SAMPLES = 40  # if the number of runs is given; more samples would hardly narrow an interval
MOST_RUNS = 100
# A spec that sets at least one of `min_samples`, `min_s` and `max_s` has these values for the others.
MIN_SAMPLES = 20
MIN_S = 2.0
MAX_S = 60.0
TARGET_REL_CI = 0.01  # the default target of a range of processes, and of the samples of a run
MARGIN, MOST_MARGIN = 0.02, 0.5
CONFIDENCE = 0.95
MIN_EXPIRES_IN_S = 60
MAX_EXPIRES_IN_S = 366 * 86400
MAX_PAIRS = 100
MetricName = Annotated[str, Field(min_length=1, max_length=128)]
Margin = Annotated[float, Field(gt=0, le=MOST_MARGIN)]
Confidence = Annotated[float, Field(ge=0.5, le=0.999)]
Pairs = Annotated[int, Field(ge=2, le=MAX_PAIRS, multiple_of=2)]
LabelText = Annotated[str, Field(min_length=1, max_length=128)]
AllowedDifference = Annotated[
    str, Field(pattern=r"^(workload|precision|method|replicas|hardware|params\.[A-Za-z0-9_]{1,64})$")
]
BaselineName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]

DEVICE_ID = re.compile(r"^(?P<kind>cpu|gpu|tpu):(?P<index>[0-9][0-9,-]*|[0-9]+:[0-9]+)(@(?P<host>[A-Za-z0-9._-]+))?$")


class Model(BaseModel, extra="forbid", allow_inf_nan=False, frozen=True):
    """Base of all documents from outside the process. It refuses unknown fields, NaN and Infinity."""


def _is_null(value: object) -> bool:
    return value is None


def without_unknown_fields(kind: type[BaseModel], values: Any) -> Any:
    """`values` without fields, at any level, that this version doesn't know. A newer version may have written them."""
    if not isinstance(values, Mapping):
        return values
    known = {}
    for name, field in kind.model_fields.items():
        if name in values:
            within = [each for each in (field.annotation, *get_args(field.annotation)) if _is_model(each)]
            known[name] = without_unknown_fields(within[0], values[name]) if within else values[name]
    return known


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _valid_webhook_url(url: str) -> str:
    parse_webhook_url(url)
    return url


class DeviceSelector(Model):
    """Which devices may run the job. If all fields are null, any device may.

    Shorthands: "cpu", "gpu", "tpu", "any", "gpu:0", "gpu:0@host".
    """

    kind: DeviceKind | None = None
    model: Annotated[str, Field(max_length=200)] | None = None
    id: Annotated[str, Field(pattern=DEVICE_ID.pattern, max_length=200)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value == "any":
            return {}
        if value in ("cpu", "gpu", "tpu"):
            return {"kind": value}
        match = DEVICE_ID.match(value)
        if match is None:
            raise ValueError('use "cpu", "gpu", "tpu", "any" or an id such as "gpu:0" or "cpu:0-1@host"')
        return {"kind": match["kind"], "id": value}

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if self.kind is not None and self.id is not None and not self.id.startswith(f"{self.kind}:"):
            raise ValueError(f'the id "{self.id}" isn\'t of kind {self.kind}')
        return self


class WeightsRef(Model):
    """Weights that another job saved: its id, and the name of the artifact."""

    job: Annotated[str, Field(min_length=1, max_length=64)]
    name: Annotated[str, Field(min_length=1, max_length=128)]


class Processes(Model):
    """How many new processes measure a result: `min`, or more (up to `max`) if the target requires it."""

    min: Annotated[int, Field(ge=1, le=100)] = LEAST_RUNS
    max: Annotated[int, Field(ge=1, le=100)] = LEAST_RUNS

    @model_validator(mode="before")
    @classmethod
    def _fixed_number(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            return {"min": value, "max": value}
        return value

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max < self.min:
            raise ValueError(f"max, {self.max}, is below min, {self.min}")
        return self


class Measure(Model):
    """How long a job may measure, and how precise its result must be.

    `budget_s` is divided between runs and their samples. A full training and the checks that are made once take extra
    time, and at least five runs are made. The other fields override the budget. `processes` is the number of runs. With
    `min_samples`, `min_s` or `max_s`, the budget is ignored, and each run samples until the interval of its median is
    within the target (default 0.01). The defaults of these three fields are then 20, 2 and 60.

    With `target_rel_ci`, the scatter of the first `processes.min` runs determines the number of runs, at most
    `processes.max`. A range of processes without a target has the target 0.01. If the target is above 0.02, Dyno uses
    0.02 to decide whether a run is steady. With too few or too short samples, the result has INSUFFICIENT_SAMPLES.
    """

    budget_s: Annotated[float, Field(gt=0, le=86400)] = Field(
        BUDGET_S, description="How long the job may measure, s; its runs and their samples share it"
    )
    # The fields below are left out of the JSON if null: most specs have only a budget.
    processes: Processes | None = Field(
        None, description="Number of runs; null: as many as the budget allows, at least 5", exclude_if=_is_null
    )
    target_rel_ci: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None,
        description="Half of the interval's width as a share of the value; null for no target",
        exclude_if=_is_null,
    )
    min_samples: Annotated[int, Field(ge=1, le=200)] | None = Field(
        None, description="Minimum number of samples of a run; null: as the budget allows", exclude_if=_is_null
    )
    max_s: Annotated[float, Field(gt=0, le=86400)] | None = Field(
        None, description="Maximum time of a run's warm-up and samples, s; null: as budgeted", exclude_if=_is_null
    )
    min_s: Annotated[float, Field(ge=0, le=3600)] | None = Field(  # after max_s, which its validator reads
        None, description="Minimum time of a run's samples, s; null: as the budget allows", exclude_if=_is_null
    )
    cold_start: bool = False

    @property
    def is_divided(self) -> bool:
        """Whether the budget decides how long a run samples."""
        return self.min_samples is None and self.min_s is None and self.max_s is None

    @property
    def buys_runs(self) -> bool:
        """Whether the budget decides how many runs there are."""
        return self.is_divided and self.processes is None and self.target_rel_ci is None

    @property
    def runs(self) -> Processes:
        """How many runs there are. Without `processes`, a budget may allow more."""
        if self.processes is not None:
            return self.processes
        return Processes() if self.target_rel_ci is None else Processes(min=LEAST_RUNS, max=TARGET_RUNS)

    @property
    def least_samples(self) -> int:
        return MIN_SAMPLES if self.min_samples is None else self.min_samples

    @property
    def longest_s(self) -> float:
        return MAX_S if self.max_s is None else self.max_s

    @property
    def least_s(self) -> float:
        return min(MIN_S, self.longest_s) if self.min_s is None else self.min_s

    @property
    def target_of_runs(self) -> float | None:
        """The target for the interval over the runs; None if there is no target."""
        ranges = self.runs.max > self.runs.min
        return self.target_rel_ci or (TARGET_REL_CI if ranges else None)

    @field_validator("min_s")
    @classmethod
    def _within_max_s(cls, min_s: float | None, info: ValidationInfo) -> float | None:
        max_s = info.data.get("max_s") or MAX_S
        if min_s is not None and min_s > max_s:
            raise ValueError(f"min_s, {min_s:g}, is above max_s, {max_s:g}")
        return min_s


class Webhook(Model):
    """The receiver that Dyno notifies when the job is done. Shorthand: the URL alone."""

    url: Annotated[
        str,
        AfterValidator(_valid_webhook_url),
        Field(
            description="An https URL with a public address, unless the service's settings allow the host",
            max_length=2000,
        ),
    ]

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, value: Any) -> Any:
        return {"url": value} if isinstance(value, str) else value


class Spec(Model):
    """One request to benchmark."""

    workload: Annotated[str, Field(min_length=1, max_length=64)]
    params: dict[str, JsonValue] = {}
    framework: FrameworkName = "tensorflow"
    device: DeviceSelector = DeviceSelector()
    replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] = Field(
        1, description="Number of copies of the model, which share each batch evenly"
    )
    measure: Measure = Measure()
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    timeout_s: Annotated[float, Field(gt=0, le=7 * 86400)] | None = None
    priority: Priority = "normal"
    labels: Annotated[dict[LabelText, LabelText], Field(max_length=32)] = {}
    webhook: Webhook | None = None
    expires_in_s: Annotated[int, Field(ge=MIN_EXPIRES_IN_S, le=MAX_EXPIRES_IN_S)] = 30 * 86400
    queue_if_absent: bool = False
    # Left out of the JSON if null: most jobs have none.
    baseline: BaselineName | None = Field(
        None, description="The baseline to compare the result with", exclude_if=lambda name: name is None
    )
    baseline_allow: Annotated[list[AllowedDifference], Field(max_length=32)] = Field(
        [],
        description="What may differ from the baseline's job: workload, params.<name>, precision, method, replicas, "
        "hardware. If any of these differs and isn't listed, the outcome is inconclusive",
        exclude_if=lambda names: not names,
    )

    @property
    def arms(self) -> list["Spec"]:
        """The specs that run in turns: this spec; for an InterleavedSpec the first, the second and the control."""
        return [self]

    @property
    def most_runs(self) -> int:
        """The maximum number of processes of all arms by the spec's own fields; a budget or a baseline may add more."""
        return sum(arm.measure.runs.max for arm in self.arms)


class InterleavedSpec(Spec):
    """Two specs whose runs take turns on one device, under one lease, so that drift affects both alike.

    Its own fields are those of the first spec, and of the job. Each arm has `pairs` runs. Every other round runs the
    arms in reverse order: A B, B A. The control A' repeats the first spec: A B A', A' B A.
    """

    against: Spec
    pairs: Pairs
    control: bool
    metric: MetricName
    margin: Margin = MARGIN
    confidence: Confidence = CONFIDENCE

    @property
    def arms(self) -> list[Spec]:
        first = Spec(**{name: getattr(self, name) for name in Spec.model_fields})
        return [first, self.against, first] if self.control else [first, self.against]


def spec_without_unknown_fields(values: Any) -> Any:
    """A spec, or two specs to run in turns, without unknown fields; see `without_unknown_fields`."""
    is_of_two = isinstance(values, Mapping) and "against" in values
    return without_unknown_fields(InterleavedSpec if is_of_two else Spec, values)
