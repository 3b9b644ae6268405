"""The commands and outputs of README.md and docs/, run as they stand there: curl and jq, and the `dyno` command."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

ROOT = Path(__file__).parent.parent
_FIRST = ["README.md", "docs/api.md", "docs/cli.md"]  # the others have no commands for callers
PAGES = [
    *map(ROOT.joinpath, _FIRST),
    *sorted({ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")} - {ROOT / name for name in _FIRST}),
]


class Block(NamedTuple):
    """A block of commands, and the JSON that the page shows right behind it."""

    text: str
    shown: str


BLOCKS = [
    Block(*found)
    for page in PAGES
    for found in re.findall(
        r"^```sh\n(.*?)^```$(?:\n\n```json\n(.*?)^```$)?", page.read_text(), re.MULTILINE | re.DOTALL
    )
]

# Commands that start processes are tested elsewhere, or run this test.
TESTED_ELSEWHERE = {
    "make demo": "tests/cli/test_up.py",
    "make install\n.venv/bin/dyno up": "tests/cli/test_up.py",
    "pip install '.[cpu]'": "tests/test_packaging.py",
    "docker compose up": "tests/test_deploy.py",
    ".venv/bin/dyno keys create --scope admin --name me": "tests/cli/test_up.py",
    "make test": "this very run",
    "export DYNO_WORKLOADS_DIR=~/workloads\n.venv/bin/dyno up": "api_tests/test_own_workloads.py",
    ".venv/bin/dyno run vector_add --n 1000000 --processes 2 --measure max_s=1": "api_tests/test_own_workloads.py",
    "DYNO_TRACES=1 OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 dyno serve": "api_tests/test_traces.py",
    "DYNO_TLS_CERT_FILE=/etc/ssl/dyno/fullchain.pem DYNO_TLS_KEY_FILE=/etc/ssl/dyno/key.pem \\\n"
    "  dyno serve --host 0.0.0.0 --port 8443": "tests/service/server/test_tls.py",
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
FOR_CALLERS = [block for block in BLOCKS if block.text.strip() not in TESTED_ELSEWHERE]
LOOPS = [
    line for block in FOR_CALLERS for line in block.text.splitlines() if re.match(r"(while|until) .*/v1/jobs/", line)
]
_END = "---- end of a block ----"
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
    """Every block that isn't named is run, so a new one needs nothing; one that is named is still on a page."""
    assert {block.text.strip() for block in BLOCKS} >= TESTED_ELSEWHERE.keys()
    assert all((ROOT / test).exists() for test in TESTED_ELSEWHERE.values() if "/" in test)
    assert len(FOR_CALLERS) >= 20


@pytest.mark.parametrize("line", LOOPS)
def test_a_loop_that_waits_for_a_job_ends_where_there_is_none(url: str, tools: str, line: str) -> None:
    """A caller whose job was deleted, or whose key was revoked, would otherwise ask for ever, as fast as it can."""
    named = dict.fromkeys(re.findall(r"/v1/jobs/\$(\w+)", line), NO_JOB)
    subprocess.run(
        ["bash", "-c", line], env={**os.environ, **named, "DYNO": url, "PATH": tools}, timeout=30, check=True
    )


@pytest.mark.verify
@pytest.mark.timeout(600)
def test_the_callers_lines_work_as_they_stand(http: httpx.Client, url: str, tools: str) -> None:
    script = "\n".join(f"{block.text}echo '{_END}'" for block in FOR_CALLERS)
    environment = {**os.environ, "DYNO": url, "DYNO_URL": url, "PATH": tools, "COLUMNS": "200"}
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
    printed = done.stdout
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
        "% of peak",
        '"name": "wrong.png"',
        '"name": "model.weights.h5"',
    ):
        assert words in printed, f"{words} is not in {printed}"
    assert re.search(r'"status": "(canceled|running)"', printed)
    outputs = printed.split(f"{_END}\n")[:-1]
    assert len(outputs) == len(FOR_CALLERS)
    shown = [(block.shown, output) for block, output in zip(FOR_CALLERS, outputs, strict=True) if block.shown]
    assert len(shown) >= 2
    for page, real in shown:
        assert _shape(json.loads(page)) == _shape(json.loads(real)), real


def _shape(answer: object) -> object:
    """The names of an answer, with the kind of value of each; how many items a list has is left open."""
    if isinstance(answer, dict):
        return {name: _shape(value) for name, value in answer.items()}
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        return "a number"
    return type(answer).__name__
