"""Server-Sent Events of jobs."""

import json


def events(api, path, **options):
    """All events with kind and id, until the service ends the stream."""
    found, fields = [], {}
    with api.http.stream("GET", path, **options) as answer:
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if line:
                fields[name] = value
            elif "data" in fields:
                found.append((fields["event"], fields["id"], json.loads(fields["data"])))
                fields = {}
    return found


def test_a_jobs_events_last_until_it_is_done_and_can_be_resumed_anywhere(api, tiny):
    job = api.submit(tiny)
    told = events(api, job["urls"]["events"])
    statuses = [data for kind, _, data in told if kind == "status"]
    assert [each["status"] for each in statuses] == ["queued", "running", "succeeded"]
    assert [each["done"] for each in statuses] == [False, False, True]
    assert told[-1][2] == statuses[-1]
    assert {data["job"] for _, _, data in told} == {job["id"]}
    result = api.http.get(job["urls"]["result"]).json()
    assert [data["metric"] for kind, _, data in told if kind == "metric"] == result["metrics"]
    middle = told[len(told) // 2][1]
    assert events(api, job["urls"]["events"], headers={"Last-Event-ID": middle}) == told[len(told) // 2 + 1 :]
    assert api.http.get(job["urls"]["events"], params={"last_event_id": told[-1][1]}).status_code == 204


def test_a_running_job_has_progress_events(api, long):
    with api.http.stream("GET", long["urls"]["events"]) as answer:
        lines = answer.iter_lines()
        assert any(line == "event: progress" for line in lines)
        data = next(line for line in lines if line.startswith("data: "))
    assert 0 <= json.loads(data.removeprefix("data: "))["progress"]["fraction"] <= 1
