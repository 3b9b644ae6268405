"""A real HTTP server that answers as a test says."""

import http.server
import json
from datetime import UTC, datetime

from dyno.models.job import Job, QueuePlace, Status, Urls
from dyno.models.spec import Spec

CUT = 0  # in place of a status: close the connection without a response


class Handler(http.server.BaseHTTPRequestHandler):
    """`answers`: status, body and optional headers of each response, in order."""

    answers = []
    seen = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        sent = {"path": self.path, "key": self.headers["Idempotency-Key"], "body": json.loads(body or b"null")}
        type(self).seen.append(sent)
        self._answer()

    def do_GET(self):
        type(self).seen.append({"path": self.path, "authorization": self.headers["Authorization"]})
        self._answer()

    do_DELETE = do_GET

    def _answer(self):
        status, payload, *more = type(self).answers.pop(0) if type(self).answers else (CUT, b"")
        if status == CUT:
            self.connection.close()
            return
        self.send_response(status)
        for name, value in (more[0] if more else {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_):
        pass


def problem(status, **more):
    return json.dumps({"status": status, "title": "wrong", "detail": "something is wrong", **more}).encode()


def canceled(version=3):
    """A canceled job as JSON."""
    job = Job(
        id="job_1",
        status=Status.CANCELED,
        done=True,
        attempt=0,
        spec=Spec(workload="matmul"),
        queue=QueuePlace(name="cpu"),
        created_at=datetime.now(UTC),
        queued_at=datetime.now(UTC),
        urls=Urls(self="/v1/jobs/job_1", result="/v1/jobs/job_1/result", cancel="/v1/jobs/job_1/cancel"),
        schema=1,
        version=version,
    )
    return job.model_dump_json(by_alias=True).encode()
