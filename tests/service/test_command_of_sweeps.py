"""`dyno sweep` and `dyno sweeps`, against the service."""

import json
import signal

import pytest

from dyno.cli.sweep_commands import parse_base, parse_devices, parse_values
from dyno.models.job import Holder, WorkerRef
from dyno.store.leases import Leases
from dyno.store.placement import queues_served
from dyno.store.redis import sync_client
from tests.cli.running_command import begun
from tests.comparisons import a_metric, of_metrics
from tests.waiting import eventually

TINY = ["sweep", "matmul", "--n", "64,128", "--device", "cpu", "--processes", "1"]


@pytest.fixture
def work(offered, settings):
    """Finish all queued jobs, with rates of about their `n`; returns their number."""
    with sync_client(settings) as client:
        leases = Leases(client, settings)
        worker = WorkerRef(id="w", device=offered.id, host=offered.host)

        def all_of_it():
            done = 0
            while claim := leases.claim(offered.full_id, queues_served(offered), worker):
                rates = [
                    (claim.spec.params.get("n") or claim.spec.params["batch_size"]) * share
                    for share in (0.99, 1.0, 1.01)
                ]
                found = of_metrics([a_metric(by_run=rates)], params=claim.spec.params)
                found = found.model_copy(update={"job": claim.job_id})
                assert leases.finish(claim, "succeed", result=found)
                done += 1
            return done

        yield all_of_it


def newest(http):
    return next(iter(http.get("/v1/sweeps").json()["data"]), {"id": None})


def test_a_sweep_prints_its_table(http, offered, work, tmp_path):
    plot = tmp_path / "sweep.svg"
    with begun(http, *TINY, "--base", "n=64", "--label", "team=x", "--plot", str(plot)) as running:
        eventually(work, 30, "queued jobs")
        told, errors = running.communicate(timeout=60)
    assert running.returncode == 0, errors
    found = http.get(newest(http)["urls"]["self"]).json()
    assert [point["values"] for point in found["points"]] == [{"params.n": 64}, {"params.n": 128}]
    job = http.get(f"/v1/jobs/{found['points'][0]['job']}").json()
    assert job["spec"]["labels"] == {"team": "x", "sweep": found["id"]}
    assert (job["spec"]["device"]["kind"], job["spec"]["measure"]["processes"]["min"]) == ("cpu", 1)
    assert f"{found['id']} 2 of 2 jobs done" in told
    rows = [[cell.strip() for cell in line.split("│")] for line in told.splitlines() if "│" in line]
    assert [(row[1], row[2]) for row in rows] == [("64", "64 FLOP/s"), ("128", "128 FLOP/s")]
    assert "FASTER" in told
    assert "<svg" in plot.read_text()


@pytest.mark.verify
def test_a_sweep_says_which_process_holds_its_device(http, settings, offered, work):
    held_by = Holder(device=offered.full_id, pid=4321, command="dyno worker")
    with begun(http, *TINY) as running:
        assert running.stdout is not None
        running.stdout.readline()
        with sync_client(settings) as store:
            assert Leases(store, settings).pass_over(held_by, queues_served(offered))
        assert running.stdout.readline() == f"{held_by}\n"
        eventually(work, 30, "queued jobs")
        running.communicate(timeout=60)
    assert running.returncode == 0


@pytest.mark.verify
def test_a_sweep_that_is_followed_again_shows_another_metric(http, offered, dyno, work, tmp_path):
    plot = tmp_path / "sweep.svg"
    with begun(http, *TINY) as running:
        eventually(work, 30, "queued jobs")
        running.communicate(timeout=60)
    sweep_id = newest(http)["id"]
    told = dyno("sweep", sweep_id, "--metric", "execution_time", "--plot", str(plot))
    assert (told.exit_code, "matmul: execution_time" in told.stdout) == (0, True), told.output
    assert told.stderr.rstrip().endswith(f"saved {plot}")
    assert "matmul: execution_time" in plot.read_text()
    as_json = dyno("sweep", sweep_id, "--metric", "execution_time", "--json")
    assert json.loads(as_json.stdout)["metric"] == "execution_time"


def test_a_search_for_batch_sizes_prints_its_answer(http, offered, work):
    words = ("sweep", "mnist_cnn", "--batch-size", "auto", "--train-samples", "64", "--metric", "throughput")
    with begun(http, *words, "--jit-compile", "true,false", "--rounds", "2", "--stop-hopeless") as running:
        eventually(work, 30, "queued jobs")
        told, errors = running.communicate(timeout=60)
    assert running.returncode == 0, errors
    limit = "(a batch of 128 is larger than the training set; at most 64)"
    for jit_compile in ("true", "false"):
        assert f"batch size with jit_compile {jit_compile}: largest that fits 64, fastest 64 {limit}" in told


def test_ctrl_c_leaves_the_sweep_running_and_says_how_to_go_on(http, offered, dyno, work):
    with begun(http, *TINY) as running:
        assert running.stdout is not None
        sweep_id = running.stdout.readline().split()[0]
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert errors.splitlines() == [
        f"{sweep_id} goes on.",
        f"follow it: dyno sweep {sweep_id}",
        f"cancel it: dyno sweep {sweep_id} --cancel",
    ]
    assert http.get(f"/v1/sweeps/{sweep_id}").json()["counts"] == {"total": 2, "queued": 2}
    canceled = dyno("sweep", sweep_id, "--cancel", "--json")
    assert (canceled.exit_code, json.loads(canceled.stdout)["status"]) == (0, "canceled")
    again = dyno("sweep", sweep_id)
    assert again.exit_code == 1
    assert f"{sweep_id}: 2 of 2 points have no result" in again.stderr
    assert work() == 0


def test_a_preset_on_a_device(http, offered, dyno):
    words = ("sweep", "--preset", "mnist-batches", "--epochs", "1", "--device", "cpu", "--framework", "tensorflow")
    with begun(http, *words, "--json") as running:
        found = eventually(lambda: (now := newest(http)).get("preset") and now, 30, "a sweep")
        http.post(found["urls"]["cancel"])
        told, _ = running.communicate(timeout=60)
    document = json.loads(told)
    assert (running.returncode, document["status"]) == (1, "canceled")
    assert document["axes"] == {"params.batch_size": [256, 512, 1024]}
    job = http.get(f"/v1/jobs/{document['points'][0]['job']}").json()
    assert (job["spec"]["params"]["epochs"], job["spec"]["device"]["kind"]) == (1, "cpu")
    listed = dyno("sweeps")
    assert [part in listed.stdout for part in (found["id"], "mnist_cnn", "batch_size (3)", "canceled")] == [True] * 4


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["sweep", "matmul", "--n", "0,64", "--device", "cpu"], 2, "(at n 0)"),
        (["sweep", "matmul", "--rows", "1,2"], 2, "matmul has no --rows"),
        (["sweep", "--cancel"], 2, "--cancel needs the id of a sweep"),
        (["sweep", "--preset", "none"], 2, "presets: matmul-devices"),
        (["sweep", "--n", "1,2"], 2, "name the workload first"),
        (["sweep", f"swp_{'0' * 26}"], 3, "there is no sweep"),
        ([*TINY, "--plot", "x.pdf"], 2, "must end in .svg or .png"),
        ([*TINY, "--plot", "/no/such/folder/x.svg"], 2, "there is no folder /no/such/folder"),
        (["sweep", f"swp_{'0' * 26}", "--n", "4"], 2, "--n 4: swp_"),
        (["sweep", f"swp_{'0' * 26}", "--rounds", "3", "--json"], 2, "--rounds: swp_"),
        (["sweep", f"swp_{'0' * 26}", "--metric", "throughput", "--cancel"], 3, "there is no sweep"),
        (["sweep", "matmul", "--n", "64", "--measure", "max_s=NaN"], 2, "NaN or infinity"),
        (["sweep", "matmul"], 2, "say what to vary: name a preset, or a workload"),
        (["sweep"], 2, "say what to vary: name a preset, or a workload"),
    ],
)
def test_wrong_requests_are_refused(offered, dyno, words, code, text):
    told = dyno(*words)
    assert (told.exit_code, text in " ".join(told.stderr.replace("│", " ").split())) == (code, True), told.stderr


def test_values_are_parsed_as_json_or_text():
    assert parse_values("256,512") == [256, 512]
    assert parse_values("[256,512]") == [[256, 512]]
    assert parse_values("true,false") == [True, False]
    assert parse_values("1,2", {"type": "string"}) == ["1", "2"]
    assert parse_values("float32,bfloat16") == ["float32", "bfloat16"]
    assert parse_devices("cpu:0,1,cpu:2-3") == ["cpu:0,1", "cpu:2-3"]
    assert parse_devices('{"model": "a, b"}') == [{"model": "a, b"}]
    assert parse_base(["device=cpu:0-0", "batch-size=256"]) == {"device": "cpu:0-0", "params.batch_size": 256}
