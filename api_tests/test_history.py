"""Results over time, as series."""


def test_results_of_one_spec_are_a_series_in_order(api, tiny):
    jobs = [api.finished(api.submit(tiny, labels={"of": "the history"})) for _ in range(2)]
    wanted = {"workload": "matmul", "label": "of=the history"}
    answer = api.http.get("/v1/history", params=wanted)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    (series,) = [each for each in found["series"] if jobs[0]["id"] in [point["job"] for point in each["points"]]]
    assert [point["job"] for point in series["points"]][-2:] == [job["id"] for job in jobs]
    point, result = series["points"][-1], api.http.get(jobs[1]["urls"]["result"]).json()
    metric = next(each for each in result["metrics"] if each["name"] == series["metric"])
    assert {name: point[name] for name in ("value", "low", "high")} == {
        name: metric[name] for name in ("value", "low", "high")
    }
    assert (point["time"], point["verdict"]) == (jobs[1]["finished_at"], result["verdict"])
    assert (series["hardware_id"], point["context_id"]) == (result["hardware_id"], result["context_id"])
    assert (series["changes"], found["alarms"], found["has_more"]) == ([], [], False)
