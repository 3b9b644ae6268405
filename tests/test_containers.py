"""`docker compose up` with no variable set, in containers that tests/containers.py makes: one job goes through.

The images' files, users, variables and commands are those of deploy/Dockerfile. Root stands for a container engine, and
this machine's programs and Python for the base images.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import PathDistribution, distribution
from pathlib import Path

import pytest

from tests.containers import make_tree, stages
from tests.test_packaging import needed, unpacked_wheel

ROOT = Path(__file__).parent.parent
NAMESPACES = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
RUN = "dyno run matmul --n 64 --repeats 1 --device cpu --processes 1 --measure min_samples=1 --measure min_s=0"
SCRIPT = f"""
{RUN} --measure max_s=0.02 --queue-if-absent --json
dyno keys create --scope admin --name me > /tmp/key 2> /dev/null
DYNO_API_KEY=$(cat /tmp/key) dyno doctor --json || true
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the wheel, built as in the image."""
    return unpacked_wheel(tmp_path_factory.mktemp("wheel"))


def installed_for(site: Path, extras: Iterable[str]) -> list[str]:
    """The files and folders in site-packages of all that the wheel with these extras requires."""
    [metadata] = site.glob("*.dist-info")
    names = needed(PathDistribution(metadata), extras) - {"tensordyno"}
    files = [file for name in names for file in distribution(name).files or ()]
    return sorted({file.parts[0] for file in files} - {"..", "__pycache__"})


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make namespaces and mounts")
@pytest.mark.skipif(shutil.which("redis-server") is None, reason="no redis-server on PATH")
@pytest.mark.verify
@pytest.mark.timeout(300)
def test_compose_up_without_settings_runs_a_job(site: Path, tmp_path: Path) -> None:
    if subprocess.run([*NAMESPACES, "mount", "-t", "tmpfs", "tmpfs", tmp_path], check=False).returncode != 0:
        pytest.skip("this machine allows no namespaces")
    make_tree(tmp_path / "api", site, installed_for(site, ["server"]))
    make_tree(tmp_path / "worker", site, installed_for(site, ["server", "cpu"]))
    command = [*NAMESPACES, sys.executable, "-P", "-m", "tests.containers", tmp_path, SCRIPT]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    result, end = json.JSONDecoder().raw_decode(done.stdout)
    checks = {each["name"]: each for each in json.loads(done.stdout[end:])}
    assert result["environment"]["framework"] == "tensorflow"
    assert result["device"]["host"] == "compose"
    assert result["metrics"]
    assert all(checks[name]["is_well"] for name in ("redis", "api", "workers", "devices")), checks


def test_a_stage_has_the_instructions_of_the_one_that_it_is_made_from() -> None:
    found = stages('# one\nARG A\nFROM a:1 AS x\nENV B=1 \\\n    C=2\n# two\nFROM x AS y\nCMD ["z"]\n')
    assert found == {"x": [("ENV", "B=1      C=2")], "y": [("ENV", "B=1      C=2"), ("CMD", '["z"]')]}
