"""One run of Schemathesis over the whole document of a house, and what came of it."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).parent
OVERTIME_S = 140  # after `within_s`: on a busy machine, schemathesis ends its last case later


@dataclass(frozen=True)
class Told:
    """`answers`: how often which of the operations was answered with which status, `headers` what each such answer
    had; `said` is for people."""

    held: bool
    said: str
    seconds: float
    answers: Counter[tuple[str, str]]
    operations: set[str]
    headers: dict[tuple[str, str], set[str]]

    @property
    def cases(self):
        return self.answers.total()

    @property
    def reached(self):
        """The operations that succeeded at least once."""
        return {operation for operation, status in self.answers if status.startswith("2")}


def ask(house, folder, *arguments, within_s):
    """`arguments` are those of `schemathesis run`."""
    counted = folder / "counted.json"
    counted.unlink(missing_ok=True)
    environment = os.environ | {
        "DYNO_FUZZ_HOOKS": str(HERE / "hooks.py"),
        "PYTHONPATH": str(HERE.parents[1]),
        "DYNO_FUZZ_COUNTED": str(counted),
        "DYNO_FUZZ_KEY_ID": house.key_id or "",
        "DYNO_FUZZ_SECRET": house.secret or "none",
        "DYNO_FUZZ_TOKEN": house.known.token,
        "DYNO_FUZZ_KNOWN": json.dumps(asdict(house.known)),
    }
    schema = folder / "openapi.json"
    schema.write_text(json.dumps(house.document))
    command = [str(Path(sys.executable).parent / "schemathesis"), "--config-file", str(HERE / "schemathesis.toml")]
    began_s = time.monotonic()
    done = subprocess.run(
        [*command, "run", str(schema), "--url", house.url, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=within_s + OVERTIME_S,
        check=False,
    )
    answers, headers = Counter(), {}
    for name, (number, names) in json.loads(counted.read_text()).items() if counted.exists() else ():
        operation, _, status = name.rpartition(" ")
        answers[operation, status], headers[operation, status] = number, set(names)
    return Told(done.returncode == 0, done.stdout, time.monotonic() - began_s, answers, house.operations, headers)
