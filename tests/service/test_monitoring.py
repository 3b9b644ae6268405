"""The files in deploy/ for Prometheus and Grafana: alerts, their unit tests and the dashboards' queries.

One test loads them in a real Prometheus that scrapes a real API.
"""

import json
import re
import shutil
import socket
import subprocess
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path

import httpx
import jq
import pytest
import yaml

from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
RULES, RULE_TESTS = (ROOT / "deploy" / "prometheus" / name for name in ("dyno.rules.yml", "dyno.rules.test.yml"))
DASHBOARD, RESULTS = (
    json.loads((ROOT / "deploy" / "grafana" / name).read_text()) for name in ("dyno.json", "dyno-results.json")
)
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
NAME = re.compile(r"\b(?:dyno_[a-z_]+|up)\b(?=[{\[) ]|$)")
WINDOWS = {"$__rate_interval": "1m", "$job": "dyno"}


def tool(name):
    """The path of a program of Debian's package prometheus. Skips the test if it is absent."""
    if (found := shutil.which(name)) is None:
        pytest.skip(f"{name} is not on this machine: Debian has it in the package prometheus")
    return found


def promtool(*words):
    done = subprocess.run([tool("promtool"), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def panels(dashboard):
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries():
    """Title and PromQL of each query of the dashboard, with its variables replaced."""
    found = [(panel["title"], target["expr"]) for panel in panels(DASHBOARD) for target in panel["targets"]]
    for variable, value in WINDOWS.items():
        found = [(title, expr.replace(variable, value)) for title, expr in found]
    return found


def names_in(expr):
    return set(NAME.findall(expr))


def test_the_alerts_pass_their_unit_tests():
    promtool("check", "rules", RULES)
    promtool("test", "rules", RULE_TESTS)


def test_every_alert_has_a_unit_test():
    fired = set(re.findall(r'alertname="(\w+)"', RULE_TESTS.read_text()))
    assert fired == {rule["alert"] for rule in ALERTS}


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_is_wrong_and_what_to_do(rule):
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"].keys() == {"summary", "description", "runbook"}
    assert rule["annotations"]["runbook"] == f"docs/runbooks.md#{rule['alert'].lower()}"


def test_every_alert_has_a_runbook_and_no_other_has_one():
    page = (ROOT / "docs" / "runbooks.md").read_text()
    sections = dict(
        zip(
            re.findall(r"^## (\w+)$", page, re.MULTILINE),
            re.split(r"^## .*$", page, flags=re.MULTILINE)[1:],
            strict=True,
        )
    )
    assert list(sections) == [rule["alert"] for rule in ALERTS]
    for alert, text in sections.items():
        assert re.findall(r"^\*\*(\w+)\.\*\* \S", text, re.MULTILINE) == ["Means", "Look", "Do"], alert


def test_every_alert_belongs_to_one_promise():
    page = (ROOT / "docs" / "operations.md").read_text()
    cells = re.findall(r"^\| [^|]+ \| (`Dyno[^|]+) \|$", page, re.MULTILINE)
    assert sorted(re.findall(r"`(Dyno\w+)`", " ".join(cells))) == sorted(rule["alert"] for rule in ALERTS)


@pytest.mark.parametrize("dashboard", [DASHBOARD, RESULTS], ids=lambda each: each["uid"])
def test_a_dashboard_names_no_data_source_and_its_panels_do_not_overlap(dashboard):
    variables = {each["name"]: each for each in dashboard["templating"]["list"]}
    sources = {name for name, each in variables.items() if each["type"] == "datasource"}
    assert set(re.findall(r'"uid": "([^"]+)"', json.dumps(dashboard["panels"]))) == {f"${{{name}}}" for name in sources}
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for one, other in combinations((panel["gridPos"] for panel in dashboard["panels"]), 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"], (one, other)


def test_every_query_of_the_dashboard_is_valid(tmp_path):
    rules = [{"record": f"query_{n}", "expr": expr} for n, (_, expr) in enumerate(queries())]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", tmp_path / "rules.yml")


def test_alerts_and_dashboard_use_only_metrics_that_the_operations_page_lists():
    page = (ROOT / "docs" / "operations.md").read_text()
    listed = set(re.findall(r"^\| `(dyno_\w+)", page, re.MULTILINE)) | {"up"}
    used = set().union(*(names_in(expr) for _, expr in queries()), *(names_in(rule["expr"]) for rule in ALERTS))
    assert {re.sub(r"_(bucket|count|sum)$", "", name) for name in used} <= listed


@contextmanager
def prometheus(api, folder):
    """A Prometheus with the alerts, which scrapes `api` each second."""
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "dyno", "static_configs": [{"targets": [api.base_url.netloc.decode()]}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    options = [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"]
    with (folder / "log").open("w") as log:
        command = [tool("prometheus"), f"--config.file={folder / 'prometheus.yml'}", *options]
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            with httpx.Client(base_url=f"http://{address}/api/v1", timeout=30) as http:
                eventually(lambda: process.poll() is not None or is_up(http), what="Prometheus has scraped the API")
                assert process.poll() is None, (folder / "log").read_text()
                yield http
        finally:
            process.terminate()
            process.wait()


def is_up(http):
    try:
        ready = http.get("query", params={"query": 'up{job="dyno"} == 1'})
    except httpx.TransportError:
        return False
    return ready.status_code == 200 and bool(ready.json()["data"]["result"])


def answer(http, path, **params):
    found = http.get(path, params=params)
    assert found.status_code == 200, found.text
    return found.json()["data"]


@pytest.mark.verify
def test_a_real_prometheus_loads_the_alerts_and_answers_the_dashboard(http, submitted, finished, tmp_path):
    finished()
    submitted()
    with prometheus(http, tmp_path) as server:
        [target] = answer(server, "targets")["activeTargets"]
        assert (target["health"], target["lastError"]) == ("up", "")

        def evaluated():
            rules = [rule for group in answer(server, "rules")["groups"] for rule in group["rules"]]
            return rules if all(rule["health"] != "unknown" for rule in rules) else []

        rules = eventually(evaluated, what="all rules are evaluated")
        assert {rule["name"]: rule["health"] for rule in rules} == {rule["alert"]: "ok" for rule in ALERTS}
        assert all(rule["state"] != "firing" for rule in rules), "the alerts without a delay look at a clean Dyno"

        scraped = set(answer(server, "label/__name__/values"))
        used = [*(expr for _, expr in queries()), *(rule["expr"] for rule in ALERTS)]
        assert set().union(*map(names_in, used)) <= scraped

        for title, expr in queries():
            if "> 0" not in expr:
                eventually(lambda expr=expr: answer(server, "query", query=expr)["result"], what=f"{title}: {expr}")
            answer(server, "query", query=expr)


def test_the_dashboard_of_results_reads_what_the_api_returns(http, finished):
    finished(spec={"labels": {"purpose": "chart"}})
    variables = {each["name"]: each["query"] for each in RESULTS["templating"]["list"] if each["type"] == "textbox"}
    variables |= {"filter": "label=purpose%3Dchart&device=cpu", "__from": "1600000000000", "__to": "4102444800000"}
    for panel in panels(RESULTS):
        [target] = panel["targets"]
        assert target["datasource"]["type"] == "yesoreyeram-infinity-datasource"
        url, root = (filled(target[name], variables) for name in ("url", "root_selector"))
        rows = http.get(url).raise_for_status().json()
        assert len(rows) == 1
        assert http.get(filled(target["url"], variables | {"filter": ""})).status_code == 200
        if target["parser"] == "jq-backend":
            rows = jq.compile(root).input_value(rows).all()
            assert rows[0]["series"] == "cpu:0-1@here float32 param.n=64"
        assert [column["selector"] for column in target["columns"] if column["selector"] not in rows[0]] == []


def filled(text, variables):
    found = re.sub(r"\$\{(\w+)\}", lambda match: variables[match[1]], text)
    assert "${" not in found
    return found
