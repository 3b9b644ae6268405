"""The public names of the package, and which packages importing it loads."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dyno

PUBLIC_NAMES = {
    *("AsyncClient", "Client", "Spec", "Job", "Status", "Result", "Metric", "Verdict", "Artifact", "RunSamples"),
    *("Comparison", "DynoError", "Refused", "ServerUnreachable", "ConnectionBroken", "JobNotSucceeded"),
    *("ComparisonNotMade", "DownloadDamaged", "UnfinishedComparison", "Validation", "ResultRow", "WorkloadEntry"),
    *("DeviceStatus", "AwayDevice", "WorkerRecord", "Cordon", "ApiKey", "CreatedKey", "Limits", "Me", "Delivery"),
    "Baseline",
    *("JobSchedule", "Sweep", "SweepSummary"),
}
# Packages that only a service, a worker or a runner needs.
NOT_FOR_CLIENTS = {"tensorflow", "keras", "jax", "torch", "numpy", "scipy", "redis", "celery", "fastapi", "uvicorn"}


def test_the_public_names_are_unchanged():
    """Removing a name breaks callers, so the CHANGELOG must mention it."""
    assert set(dyno.__all__) == PUBLIC_NAMES
    assert dyno.__all__ == sorted(dyno.__all__)
    assert dir(dyno) == dyno.__all__


@pytest.mark.parametrize("name", sorted(PUBLIC_NAMES))
def test_each_name_is_a_class_of_that_name(name):
    found = getattr(dyno, name)
    assert isinstance(found, type)
    assert found.__name__ == name


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(dyno.__file__).read_text())
    (type_checking,) = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in type_checking.body if isinstance(node, ast.ImportFrom)]
    known = {alias.name: node.module for node in imports for alias in node.names}
    assert known.keys() == PUBLIC_NAMES
    for name, module in known.items():
        assert getattr(sys.modules[str(module)], name) is getattr(dyno, name)


def test_every_error_of_the_client_is_public_and_a_dyno_error():
    from dyno.client import exceptions

    classes = {
        each for each in vars(exceptions).values() if isinstance(each, type) and each.__module__ == exceptions.__name__
    }
    assert {each.__name__ for each in classes} <= PUBLIC_NAMES
    assert all(issubclass(each, dyno.DynoError) for each in classes)


def test_an_unknown_name_raises_attribute_error():
    with pytest.raises(AttributeError, match="Nothing"):
        dyno.Nothing  # noqa: B018


def loaded_by(statement):
    """The packages that a fresh interpreter loads for the statement."""
    program = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_importing_the_package_imports_no_other_package():
    installed = loaded_by("import dyno") - set(sys.stdlib_module_names)
    assert installed == {"dyno"}


def test_the_client_imports_no_framework_and_no_server_code():
    found = loaded_by("from dyno import *")
    assert {"dyno", "httpx"} <= found
    assert not found & (NOT_FOR_CLIENTS | {"service", "workers"})
