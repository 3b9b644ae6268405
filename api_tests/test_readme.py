"""The commands and outputs of README.md and docs/, run as they stand there: curl and jq, and the `dyno` command."""

import ast
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from api_tests.conftest import ran
from tests.guides import GUIDES, ROOT, blocks, languages, programs_of

BLOCKS = [block for page in GUIDES for block in blocks(page)]
FIRST_KEY = "api_tests/test_keys.py::test_a_key_created_on_the_host_is_needed_from_then_on_and_revoked_at_once"
OWN_WORKLOAD = "api_tests/test_own_workloads.py::test_the_workload_of_the_page_runs_verified_like_any_other"
TWO_VERSIONS = "api_tests/test_own_workloads.py::test_the_gate_of_the_page_on_ci_fails_when_the_change_is_slower"
SHELL_GATE = "api_tests/test_readme.py::test_a_gate_in_a_plain_shell_of_ci_md_fails_a_slower_job"
GATE_IN_TURNS = "api_tests/test_readme.py::test_the_gate_in_turns_of_ci_md_fails_a_slower_change"
CLIENT = "api_tests/test_clients.py::test_the_python_of_the_readme_and_of_the_page_on_the_client_runs"
BACKUP = "tests/workers/whole/test_backup.py::test_a_backup_has_every_accepted_job_with_its_result_and_files"

# A block -> its test. These blocks start processes, need a key, or run this test.
TESTED_ELSEWHERE = {
    "make demo": "tests/cli/test_up.py::test_the_demo_prints_both_results_and_leaves_nothing",
    "make install\n.venv/bin/dyno up": (
        "tests/cli/test_up.py::test_it_serves_jobs_keeps_them_over_a_restart_and_ctrl_c_leaves_nothing"
    ),
    "pip install '.[demo,cpu]'": "tests/test_packaging.py::test_the_wheel_contains_every_file_of_the_packages",
    "docker compose up": (
        "tests/test_containers.py::test_a_key_made_in_the_container_runs_jobs_through_the_published_port"
    ),
    ".venv/bin/dyno keys create --scope admin --name me": FIRST_KEY,
    "dyno keys create --scope admin --name me": FIRST_KEY,
    'curl -sS -H "Authorization: Bearer $DYNO_API_KEY" $DYNO_URL/v1/jobs': FIRST_KEY,
    'curl -sS -H "Authorization: Bearer $DYNO_API_KEY" $DYNO_URL/v1/webhook-secret': (
        "tests/service/keys/test_webhooks.py::test_a_key_handles_its_own_deliveries_and_an_admin_sees_all"
    ),
    "make test": "tests/test_makefile.py::test_install_makes_the_given_environment",
    "export DYNO_WORKLOADS_DIR=~/workloads\n.venv/bin/dyno up": OWN_WORKLOAD,
    ".venv/bin/dyno run vector_add --n 1000000 --budget 5": OWN_WORKLOAD,
    "DYNO_TRACES=1 OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 dyno serve": (
        "api_tests/test_traces.py::test_a_trace_spans_client_queue_and_each_run"
    ),
    "DYNO_TLS_CERT_FILE=/etc/ssl/dyno/fullchain.pem DYNO_TLS_KEY_FILE=/etc/ssl/dyno/key.pem \\\n"
    "  dyno serve --host 0.0.0.0 --port 8443": (
        "tests/service/server/test_tls.py::test_the_api_speaks_tls_and_tells_when_the_certificate_expires"
    ),
    "dyno cordon cpu:0-3@lab-3       # for each of its devices in `dyno devices`: no new jobs\n"
    "dyno workers                    # wait until its workers are idle\n"
    "systemctl stop 'dyno-worker*'   # or: docker compose stop worker-cpu\n"
    'ls "$DYNO_SPOOL_DIR"            # empty: Redis has all results': (
        "tests/workers/whole/test_drain.py::test_a_drained_device_ends_its_job_takes_no_other_and_returns"
    ),
}
# The beginning of a block's first line -> the test that reads the block from its page, and runs or checks all of it.
READ_FROM_THE_PAGE = {
    """echo '{"workload": "my_code", "params": {"version": "main"}""": TWO_VERSIONS,
    "CODE=0\n.venv/bin/dyno run $GATED": SHELL_GATE,
    """printf '{"workload": "matmul", "params": {"n": 512""": GATE_IN_TURNS,
    'mkdir -p "$BACKUP/artifacts"': BACKUP,
    'mkdir -p "$REDIS_DIR/appendonlydir" "$ARTIFACTS"': BACKUP,
    'for folder in "$ARTIFACTS"/job_*; do': BACKUP,
    'echo "DYNO_WEBHOOK_SECRET=whsec_$(openssl rand -base64 32)" > webhooks.env': (
        "tests/test_settings.py::test_the_commands_of_the_guide_make_a_valid_webhook_secret"
    ),
    "kubectl apply -f deploy/kubernetes/base/namespace.yaml": (
        "tests/test_kubernetes.py::test_the_commands_of_the_guide_fit_the_manifests"
    ),
    "install -m 644 deploy/systemd/*.service /etc/systemd/system/": (
        "tests/test_systemd.py::test_the_commands_of_the_guide_install_what_the_units_name"
    ),
}
# Code of a page that no shell runs -> its test, which reads it from the page.
OTHER_CODE = {
    ("README.md", "python"): CLIENT,
    ("client.md", "python"): CLIENT,
    ("tutorial.md", "python"): "tests/test_packaging.py::test_the_instrument_measures_where_no_service_is_installed",
    ("webhooks.md", "python"): "api_tests/test_webhooks.py::test_a_done_jobs_webhook_is_delivered_after_three_failures",
    ("write-a-workload.md", "python"): OWN_WORKLOAD,
    ("ci.md", "python"): TWO_VERSIONS,
    ("ci.md", "yaml"): "api_tests/test_readme.py::test_the_workflow_of_the_guide_holds_a_commit_against_the_one_before",
    ("deployment.md", "yaml"): (
        "tests/test_kubernetes.py::test_the_kustomization_of_the_guide_sets_registries_digests_and_replicas"
    ),
    ("operations.md", "yaml"): "tests/service/routes/test_metrics.py::test_the_rules_of_the_operations_page_are_valid",
}
# What a page has to print, beside what it shows.
PRINTED = {
    "README.md": ['"verdict": "'],
    "api.md": [
        '"status": "succeeded"',
        '"name": "throughput"',
        "matmul: ",
        '"repeats"',
        '"state": "',
        '"cordoned": true',
        '"cordoned": false',
        '"/params/n"',
        '"/params/dtype"',
        '"name": "wrong.png"',
        '"name": "model.weights.h5"',
    ],
    "cli.md": ["takes no more jobs", "takes jobs again", "FLOP/s"],
}
# The same engine as the command jq, from the package of that name, for machines without the command.
JQ = """#!{python}
import json, sys, jq
from pathlib import Path
options = [word for word in sys.argv[1:] if word.startswith("-")]
program, *files = [word for word in sys.argv[1:] if not word.startswith("-")]
value = None
for value in jq.compile(program).input_text(Path(files[0]).read_text() if files else sys.stdin.read()):
    raw = "-r" in options and isinstance(value, str)
    print(value if raw else json.dumps(value, indent=2))
sys.exit(1 if "-e" in options and value in (None, False) else 0)
"""


def reader(block):
    """The test that reads the block from its page."""
    return next((test for text, test in READ_FROM_THE_PAGE.items() if block.text.startswith(text)), None)


def is_tested_elsewhere(block):
    return block.text.strip() in TESTED_ELSEWHERE or reader(block) is not None


def is_untested(block):
    """Whether the page marks all programs that the block calls."""
    return bool(programs_of(block.text)) and programs_of(block.text) <= block.section.untested


FOR_CALLERS = [block for block in BLOCKS if not is_tested_elsewhere(block) and not is_untested(block)]
CI_BLOCKS = [block for block in BLOCKS if block.section.page.name == "ci.md"]
RUN_HERE = [page for page in GUIDES if any(block.section.page == page for block in FOR_CALLERS)]
LOOPS = [
    line for block in FOR_CALLERS for line in block.text.splitlines() if re.match(r"(while|until) .*/v1/jobs/", line)
]
BIN = Path(sys.executable).parent
_END = "---- end of a block ----"
NO_JOB = "job_00000000000000000000000000"


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    """A PATH with curl and jq on it."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not on this machine")
    folder = tmp_path_factory.mktemp("bin")
    if shutil.which("jq") is None:
        jq = folder / "jq"
        jq.write_text(JQ.format(python=sys.executable))
        jq.chmod(jq.stat().st_mode | stat.S_IXUSR)
    return f"{folder}:{os.environ['PATH']}"


def test_every_block_is_run_here_or_tested_elsewhere_or_marked_as_untested():
    """Every block that isn't named is run, so a new one needs nothing; one that is named is still on a page."""
    assert {block.text.strip() for block in BLOCKS} >= TESTED_ELSEWHERE.keys()
    assert all(any(block.text.startswith(text) for block in BLOCKS) for text in READ_FROM_THE_PAGE)
    assert len(FOR_CALLERS) >= 20
    for block in FOR_CALLERS:
        assert programs_of(block.text) <= {"curl", "dyno", "jq"}, f"name a test, or mark it as untested: {block.text}"


def test_every_block_of_other_code_has_a_test():
    assert {(page.name, each) for page in GUIDES for each in languages(page) & {"python", "yaml"}} == OTHER_CODE.keys()


@pytest.mark.parametrize(
    "test", sorted({*TESTED_ELSEWHERE.values(), *READ_FROM_THE_PAGE.values(), *OTHER_CODE.values()})
)
def test_the_test_of_a_block_exists(test):
    path, _, name = test.partition("::")
    text = (ROOT / path).read_text()
    assert name in {each.name for each in ast.parse(text).body if isinstance(each, ast.FunctionDef)}
    pages = {block.section.page.name for block in BLOCKS if reader(block) == test}
    pages |= {page for (page, _), its in OTHER_CODE.items() if its == test}
    assert all(page in text for page in pages), "the test doesn't read the page"


@pytest.mark.parametrize("line", LOOPS)
def test_a_loop_that_waits_for_a_job_ends_where_there_is_none(url, tools, line):
    """A caller whose job was deleted, or whose key was revoked, would otherwise ask for ever, as fast as it can."""
    named = dict.fromkeys(re.findall(r"/v1/jobs/\$(\w+)", line), NO_JOB)
    subprocess.run(
        ["bash", "-c", line], env={**os.environ, **named, "DYNO": url, "PATH": tools}, timeout=30, check=True
    )


@pytest.mark.verify
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", RUN_HERE, ids=lambda page: page.name)
def test_the_callers_lines_work_as_they_stand(http, url, tools, page, tmp_path):
    """Each page alone, from its top to its end."""
    here = [block for block in FOR_CALLERS if block.section.page == page]
    script = "\n".join(f"{block.text}echo '{_END}'" for block in here)
    environment = {**os.environ, "DYNO": url, "DYNO_URL": url, "PATH": tools, "COLUMNS": "200"}
    script = script.replace(".venv/bin/dyno", str(BIN / "dyno"))
    done = ran("bash", "-euo", "pipefail", "-c", script, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = done.stdout
    for words in PRINTED.get(page.name, []):
        assert words in printed, f"{words} is not in {printed}"
    if page.name == "api.md":
        assert re.search(r'"status": "(canceled|running)"', printed)
    outputs = printed.split(f"{_END}\n")[:-1]
    for block, output in zip(here, outputs, strict=True):
        if block.shown:
            assert _shape(json.loads(block.shown)) == _shape(json.loads(output)), output


@pytest.mark.verify
def test_the_workflow_of_the_guide_holds_a_commit_against_the_one_before(http, url, tools, tmp_path):
    """Its steps, for two commits. A short job on the CPU stands in for the training on a GPU."""
    [text] = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "docs" / "ci.md").read_text(), re.MULTILINE | re.DOTALL)
    jobs = yaml.safe_load(text)
    (tmp_path / "workflow.yml").write_text(yaml.safe_dump({"on": "push", "jobs": jobs}))
    check = [BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", tmp_path / "workflow.yml"]
    subprocess.run(check, check=True, capture_output=True)
    short = "matmul --n 512 --repeats 10 --device cpu --processes 3 --measure max_s=0.5"
    http.delete("/v1/baselines/main")
    for commit in ("abc", "def"):
        install, *steps = [step["run"] for step in jobs["benchmark"]["steps"]]
        assert install == "pip install ${{ vars.DYNO_WHEEL }}"
        for step in steps:
            assert "dyno run" not in step or "mnist_cnn --device gpu" in step
            script = step.replace("mnist_cnn --device gpu", short).replace("${{ github.sha }}", commit)
            env = {**os.environ, "DYNO_URL": url, "PATH": f"{BIN}:{tools}"}
            done = ran("bash", "-eo", "pipefail", "-c", script, cwd=tmp_path, env=env)
            # The second commit may be proven slower: then dyno exits with 5, and the step fails.
            assert done.returncode == 0 or (done.returncode, commit) == (5, "def"), done.stdout + done.stderr
        result = json.loads((tmp_path / "result.json").read_text())
        assert (result.get("baseline") is None) == (commit == "abc"), result
    assert http.delete("/v1/baselines/main").status_code == 204


@pytest.mark.verify
@pytest.mark.parametrize(
    ("n", "codes"),
    [("512", {0, 5}), ("16 --baseline-allow params.n", {5}), ("16", {6})],
    ids=["the same code, slower by chance", "far slower code", "other work"],
)
def test_a_gate_in_a_plain_shell_of_ci_md_fails_a_slower_job(http, url, tools, tmp_path, n, codes):
    save, gate = [block.text for block in CI_BLOCKS if "GATED" in block.text]
    changed = f'GATED="${{GATED/--n 512/--n {n}}}"\n'
    done = _bash(save + changed + gate, url, tools, tmp_path)
    assert done.returncode in codes, done.stdout + done.stderr
    assert ("slower than main allows" in done.stdout) == (done.returncode == 5)
    assert http.delete("/v1/baselines/main").status_code == 204
    done = _bash('GATED="matmul --n 16"\n' + gate, url, tools, tmp_path)
    assert done.returncode == 3, done.stdout + done.stderr


@pytest.mark.verify
@pytest.mark.parametrize(
    ("n", "codes"), [("512", {0, 5}), ("16", {5})], ids=["the same code, slower by chance", "far slower code"]
)
def test_the_gate_in_turns_of_ci_md_fails_a_slower_change(url, tools, tmp_path, n, codes):
    [gate] = [block.text for block in CI_BLOCKS if reader(block) == GATE_IN_TURNS]
    copied = "cp main.json change.json\n"
    assert copied in gate
    done = _bash(gate.replace(copied, f"sed 's/512/{n}/' main.json > change.json\n"), url, tools, tmp_path)
    assert done.returncode in codes, done.stdout + done.stderr
    assert ("the change is slower" in done.stdout) == (done.returncode == 5)


def _bash(script, url, tools, folder):
    """What a step of CI runs: bash ends at the first command that fails."""
    script = script.replace(".venv/bin/dyno", str(BIN / "dyno"))
    env = {**os.environ, "DYNO": url, "DYNO_URL": url, "PATH": tools}
    return ran("bash", "-euo", "pipefail", "-c", script, cwd=folder, env=env)


def _shape(answer):
    """The names of an answer, with the kind of value of each; how many items a list has is left open.

    A figure may be unknown on this machine, such as the peak of an ARM processor.
    """
    if isinstance(answer, dict):
        return {name: _shape(value) for name, value in answer.items()}
    if answer is None or (isinstance(answer, int | float) and not isinstance(answer, bool)):
        return "a number or null"
    return type(answer).__name__
