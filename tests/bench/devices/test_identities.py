"""What reads the processor's identity, on processors that this machine doesn't have."""

import io
import os
import subprocess
from inspect import isfunction
from pathlib import Path

import pytest
from rich.console import Console

from dyno.bench.devices import cpu
from dyno.bench.devices.cpu_speed import flop_per_cycle, measure_cpu_peaks
from dyno.bench.devices.environment import hardware_id
from dyno.bench.workloads.device_info import host_facts, listing
from dyno.cli import render, up
from dyno.models.device import fits
from dyno.models.result import BasedOn, Peak, Repeat
from dyno.models.spec import DEVICE_ID, DeviceSelector
from dyno.settings import Settings
from tests.comparisons import a_metric, of_metrics
from tests.cores import CORE
from tests.guides import SHOWN, shape
from tests.identities import MAKERS, PROCESSORS, Identity, wrapper

NAMES = {
    **{"amd": "AMD EPYC 9554", "intel": "Intel Xeon Platinum 8481C", "arm": "Arm Neoverse V2"},
    "unknown": "ExampleMaker (family 999, model 999)",
}
EVERY = [Identity(maker, processors) for maker in MAKERS for processors in PROCESSORS]


@pytest.fixture(params=EVERY, ids=lambda one: f"{one.maker}-{one.processors}")
def identity(request, tmp_path, monkeypatch):
    """Replaces the paths below /proc and /sys that `dyno.bench.devices.cpu` reads by default."""
    one: Identity = request.param
    one.write(tmp_path)
    (tmp_path / "proc/meminfo").symlink_to(cpu.MEMINFO)
    for function in filter(isfunction, vars(cpu).values()):
        defaults = [
            tmp_path / str(value).lstrip("/") if value in (cpu.CPUINFO, cpu.TOPOLOGY, cpu.ROOT) else value
            for value in function.__defaults__ or ()
        ]
        monkeypatch.setattr(function, "__defaults__", tuple(defaults) or None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(one.processors)))
    return one


def test_the_device_has_an_id_a_class_and_its_cores(identity):
    device = cpu.discover_cpu(None, "here", Settings())
    assert DEVICE_ID.match(device.id)
    assert device.cores == list(range(identity.processors))
    assert len(cpu.siblings(device.cores)) == 0
    assert len(cpu.package_cores(device.cores[:1])) == identity.processors - 1
    assert device.last_cache_bytes == 2**25
    cores = f"{identity.processors} core{'s' if identity.processors > 1 else ''}"
    assert device.called == f"{NAMES[identity.maker]}, {cores}"
    assert hardware_id(device)
    assert fits(DeviceSelector(kind="cpu", model=device.model), device)
    assert len(up.reserve(Settings(), ["cpu"], range(identity.processors))) == (identity.processors == 64)


def test_a_command_can_be_started_on_another_processor(tmp_path):
    """As the rows of `make matrix` do."""
    one = Identity("arm", 64)
    if not (command := wrapper(one.write(tmp_path))):
        pytest.skip("this host doesn't allow it")
    files = [str(cpu.CPUINFO), f"{cpu.TOPOLOGY}/online"]
    printed = subprocess.run([*command, "cat", *files], capture_output=True, text=True, check=True).stdout
    assert printed == "".join(map(Path.read_text, (tmp_path / name.lstrip("/") for name in files)))


def test_the_peak_is_a_figure_or_null_with_a_reason(identity):
    assert (flop_per_cycle(cpu.processor()) is None) == (
        identity.maker in ("arm", "unknown") or "fma" not in cpu.processor().isa
    )
    for figure in measure_cpu_peaks([CORE]).values():
        assert (figure.value is None) == (figure.reason is not None)


def test_the_facts_of_the_host_can_be_listed(identity):
    facts = host_facts()
    assert facts["cpu"]["threads"] == facts["cpu"]["cores"] == identity.processors
    assert any(line.startswith("Model:") and facts["cpu"]["model"] in line for line in listing(facts).splitlines())


@pytest.mark.parametrize("fraction", [0.869, None])
def test_a_result_has_the_shape_that_the_readme_shows(identity, fraction):
    device = cpu.discover_cpu(None, "here", Settings())
    assert shape(result_on(device, fraction)) == shape(SHOWN) - (set() if fraction else {"#% of peak"})


def result_on(device, fraction):
    """A result up to its verdict, as the command prints it."""
    metric = a_metric(by_run=[4.5e11] * 5)
    repeat = Repeat(low=4.4e11, high=4.6e11, based_on=BasedOn(runs=5, jobs=0), clock_hz=None, elasticity=None)
    answer = of_metrics(
        [metric.model_copy(update={"repeat": repeat})],
        device=device.model_dump(mode="json"),
        peak=Peak(value=fraction and 5.2e11, fraction=fraction),
    )
    printed = io.StringIO()
    render.result(Console(file=printed, width=200), answer, "")
    return printed.getvalue().partition("verdict:")[0] + "verdict:"


def test_what_a_machine_decides_is_no_part_of_a_shape():
    other = "matmul on Some (R) name @ 2.7 GHz (cpu:0-1,4)\nthroughput 1 TFLOP/s (±12%), 8.5% of peak\nverdict:"
    assert shape(other) == {"matmul on DEVICE", "throughput #FLOP/s", "±#%", "#% of peak", "verdict:"}
    assert shape(SHOWN.replace("throughput", "speed")) != shape(SHOWN)
