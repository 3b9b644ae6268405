import importlib
import sys

import pytest

from dyno.bench.registry import find, registry, workload
from dyno.errors import UnknownWorkload, WorkloadFault

GOOD = """
from dyno.bench.contract import Estimate, MetricSpec, Params, Workload

WORKLOAD = Workload(
    name={name!r},
    description="For a test",
    params=Params,
    metrics=(MetricSpec("time", "s", "lower", "Time"),),
    flops=lambda params: 0.0,
    estimate=lambda params, device, replicas=1, framework="tensorflow": Estimate(1.0, 1),
    build=lambda params, context: None,
)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A separate importable package for each test."""
    package = tmp_path / f"plugins_{tmp_path.name.replace('-', '_')}"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    return package


def _faults(folder):
    with pytest.raises(WorkloadFault) as fault:
        find([folder], folder.name)
    return fault.value.detail


def test_the_registry_has_the_workloads_by_name():
    assert {"matmul", "mnist_cnn", "device_info"} <= registry().keys()
    assert list(registry()) == sorted(registry())
    assert all(workload(name).name == name for name in registry())


def test_the_error_for_an_unknown_workload_lists_the_available_ones():
    with pytest.raises(UnknownWorkload, match=r"matmul, .*mnist_cnn"):
        workload("matmull")


def test_adding_a_file_adds_a_workload(folder):
    (folder / "spin.py").write_text(GOOD.format(name="spin"))
    (folder / "_parts.py").write_text("raise RuntimeError('not a workload, not imported')")
    assert list(find([folder], folder.name)) == ["spin"]


def test_every_fault_of_every_file_is_reported_at_once(folder):
    (folder / "broken.py").write_text("import no_such_module_anywhere")
    (folder / "empty.py").touch()
    (folder / "fine.py").write_text(GOOD.format(name="fine"))
    (folder / "renamed.py").write_text(GOOD.format(name="other").replace('"For a test"', '""'))
    (folder / "syntax.py").write_text("def")
    faults = _faults(folder)
    for expected in (
        "broken.py: import failed: ModuleNotFoundError",
        "empty.py: define WORKLOAD, a Workload",
        'renamed.py: the workload is named "other", unlike its file, the description is missing',
        "syntax.py: import failed: SyntaxError",
    ):
        assert expected in faults
    assert "fine.py" not in faults


@pytest.mark.parametrize(
    ("part", "broken", "complaint"),
    [
        ("params=Params", "params=dict", "params must be a subclass of Params"),
        ("flops=lambda params: 0.0", "flops=None", "flops must be callable"),
        ('metrics=(MetricSpec("time", "s", "lower", "Time"),)', "metrics=()", "metrics are missing"),
        (
            'metrics=(MetricSpec("time", "s", "lower", "Time"),)',
            'metrics=(MetricSpec("time", "s", "lower", "Time"),) * 2',
            'duplicate metric "time"',
        ),
    ],
)
def test_a_missing_part_is_named(folder, part, broken, complaint):
    source = GOOD.format(name="part")
    assert part in source
    (folder / "part.py").write_text(source.replace(part, broken))
    assert complaint in _faults(folder)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder of one's own, named by the setting."""
    monkeypatch.setenv("DYNO_WORKLOADS_DIR", str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "dyno_workloads"]:
        del sys.modules[name]


def test_a_file_in_the_named_folder_adds_a_workload(own):
    (own / "spin.py").write_text("from dyno_workloads._speed import SPEED\n" + GOOD.format(name="spin"))
    (own / "_speed.py").write_text("SPEED = 1")
    found = registry.__wrapped__()
    assert {"spin", "matmul"} <= found.keys()
    assert list(found) == sorted(found)


def test_a_file_in_the_named_folder_hides_nothing_of_dynos(own):
    (own / "matmul.py").write_text(GOOD.format(name="matmul"))
    (own / "contract.py").touch()
    with pytest.raises(WorkloadFault) as fault:
        registry.__wrapped__()
    assert "matmul.py: Dyno has a workload of this name; rename the file" in fault.value.detail
    assert "contract.py: define WORKLOAD, a Workload" in fault.value.detail


def test_a_named_folder_that_does_not_exist_stops_the_start(own):
    own.rmdir()
    with pytest.raises(WorkloadFault, match=r"DYNO_WORKLOADS_DIR: .* is not a folder"):
        registry.__wrapped__()
