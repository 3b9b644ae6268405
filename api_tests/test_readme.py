"""The README's commands, run as they stand there: a caller with curl and jq, and the `dyno` command."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)

# What starts a whole Dyno or a developer's run is tested elsewhere, or is what runs this test.
TESTED_ELSEWHERE = {
    "make demo": "tests/cli/test_up.py",
    "make install\n.venv/bin/dyno up": "tests/cli/test_up.py",
    "pip install '.[cpu]'": "tests/test_packaging.py",
    "docker compose up": "tests/test_deploy.py",
    ".venv/bin/dyno keys create --scope admin --name me": "tests/cli/test_up.py",
    "make test": "this very run",
}
# The same engine as the command jq, from the package of that name, for machines without the command.
JQ = """#!{python}
import json, sys, jq
*options, program = sys.argv[1:]
value = None
for value in jq.compile(program).input_text(sys.stdin.read()):
    raw = "-r" in options and isinstance(value, str)
    print(value if raw else json.dumps(value, indent=2))
sys.exit(1 if "-e" in options and value in (None, False) else 0)
"""
LOOPS = [line for block in BLOCKS for line in block.splitlines() if re.match(r"(while|until) .*/v1/jobs/", line)]
NO_JOB = "job_00000000000000000000000000"


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH with curl and jq on it."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not on this machine")
    folder = tmp_path_factory.mktemp("bin")
    if shutil.which("jq") is None:
        jq = folder / "jq"
        jq.write_text(JQ.format(python=sys.executable))
        jq.chmod(jq.stat().st_mode | stat.S_IXUSR)
    return f"{folder}:{os.environ['PATH']}"


def test_every_block_is_run_here_or_tested_elsewhere() -> None:
    others = [block.strip() for block in BLOCKS if not _is_for_a_caller(block)]
    assert sorted(others) == sorted(TESTED_ELSEWHERE)
    assert len(BLOCKS) - len(others) >= 7


@pytest.mark.parametrize("line", LOOPS)
def test_a_loop_that_waits_for_a_job_ends_where_there_is_none(url: str, tools: str, line: str) -> None:
    """A caller whose job was deleted, or whose key was revoked, would ask for ever, and as fast as it can."""
    named = dict.fromkeys(re.findall(r"/v1/jobs/\$(\w+)", line), NO_JOB)
    subprocess.run(
        ["bash", "-c", line], env={**os.environ, **named, "DYNO": url, "PATH": tools}, timeout=30, check=True
    )


@pytest.mark.verify
def test_the_callers_lines_work_as_they_stand(http: httpx.Client, url: str, tools: str) -> None:
    script = "\n".join(block for block in BLOCKS if _is_for_a_caller(block))
    environment = {**os.environ, "DYNO": url, "PATH": tools, "COLUMNS": "200"}
    script = script.replace(".venv/bin/dyno", str(Path(sys.executable).parent / "dyno"))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = done.stdout
    for words in (
        '"status": "succeeded"',
        '"name": "throughput"',
        '"verdict": "indicative"',
        "matmul: ",
        '"repeats"',
        '"state": "',
        '"cordoned": true',
        '"cordoned": false',
        "takes no more jobs",
        "takes jobs again",
        '"/params/n"',
        '"/params/dtype"',
        "fraction of peak",
        '"name": "wrong.png"',
        '"name": "model.weights.h5"',
    ):
        assert words in shown, f"{words} is not in {shown}"
    assert re.search(r'"status": "(canceled|running)"', shown)


def _is_for_a_caller(block: str) -> bool:
    return "$DYNO" in block
