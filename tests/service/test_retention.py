import logging

from service.app import create_app
from tests.waiting import eventually


def test_the_api_deletes_the_jobs_beyond_the_limit_and_reports_it(serve, settings, finished, caplog):
    ids = [finished() for _ in range(3)]
    limited = settings.model_copy(update={"max_done": 1, "reap_every_s": 0.05})
    with caplog.at_level(logging.INFO, "dyno.audit"), serve(create_app(limited)) as http:
        eventually(lambda: [job["id"] for job in http.get("/v1/jobs").json()["data"]] == ids[2:])
        eventually(lambda: 'dyno_jobs_dropped_total{limit="max_done"} 2.0' in http.get("/metrics").text)
    assert 'jobs-dropped limit="max_done" jobs=2' in caplog.text
