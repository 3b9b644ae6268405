"""The workloads that jobs can run."""

from fastapi import APIRouter

from dyno.bench.contract import Workload
from dyno.bench.training.workload import TrainingParams
from dyno.errors import UnknownWorkload
from dyno.formatting import did_you_mean
from dyno.models.inventory import WorkloadEntry, WorkloadList, WorkloadMetric
from service import auth, dependencies
from service.problems import documented

router = APIRouter(prefix="/v1/workloads", tags=["workloads"])


@router.get("", operation_id="listWorkloads", summary="List workloads")
@auth.requires(auth.READ, auth.EVERYBODYS)
async def browse(state: dependencies.StateDep) -> WorkloadList:
    """List all workloads by name."""
    return WorkloadList(data=[_entry(workload) for workload in state.workloads.values()])


@router.get(
    "/{name}", operation_id="getWorkload", summary="Read a workload", responses=documented("workload-not-found")
)
@auth.requires(auth.READ, auth.EVERYBODYS)
async def show(name: str, state: dependencies.StateDep) -> WorkloadEntry:
    """Read one workload."""
    try:
        return _entry(state.workloads[name])
    except KeyError:
        names = ", ".join(state.workloads)
        meant = did_you_mean(name[:64], state.workloads)
        raise UnknownWorkload(f'no workload "{name[:64]}"{meant}; workloads: {names}') from None


def _entry(workload: Workload) -> WorkloadEntry:
    return WorkloadEntry(
        name=workload.name,
        description=workload.description,
        frameworks=list(workload.frameworks),
        trains=issubclass(workload.params, TrainingParams),
        replicable=workload.replicable,
        datasets=list(workload.datasets),
        params=workload.params.model_json_schema(),
        metrics=[
            WorkloadMetric(name=m.name, unit=m.unit, better=m.better, description=m.description, once=m.once)
            for m in workload.metrics
        ],
        references=list(workload.references),
    )
