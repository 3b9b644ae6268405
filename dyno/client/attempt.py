"""What a worker asks of the service about the files of the job that it runs."""

from __future__ import annotations

from pathlib import Path

from dyno.client.call import call
from dyno.client.client import Client
from dyno.client.files import file_path
from dyno.client.steps import Steps, asked
from dyno.client.transport import Transport
from dyno.result import Artifact

UPLOAD_S = 60.0  # for each piece, and for the answer: the service writes the file to its disk first


class AttemptClient(Client):
    """A client that shows the token of an attempt in place of a key.

    That lets it store files of its job, and download those of another one that its job starts from.
    """

    def __init__(self, url: str, job_id: str, token: str, *, timeout_s: float = 10.0) -> None:
        self.url = url
        self._job_id = job_id
        self._http = Transport(url, timeout_s, {"Authorization": f"Bearer {token}", "Dyno-Job": job_id})

    @call
    def upload(self, name: str, source: Path) -> Steps[Artifact]:
        """Store a file of the job."""
        headers = {"Content-Type": "application/octet-stream"}
        path = file_path(self._job_id, name)
        with source.open("rb") as file:
            return (yield from asked(Artifact, "PUT", path, content=file, headers=headers, timeout=UPLOAD_S))
