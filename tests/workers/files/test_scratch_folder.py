"""Scratch folders are deleted at the end of an attempt, or after their worker was killed."""

import signal
import subprocess
import sys
from pathlib import Path

from workers.artifact_upload import scratch_folder

HOLD = """
import sys, time
from pathlib import Path
from workers.artifact_upload import scratch_folder
with scratch_folder(Path(sys.argv[1])) as folder:
    (folder / "file").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_worker_left_is_deleted_by_the_next_and_what_a_live_one_has_is_not(tmp_path):
    command = [sys.executable, "-P", "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        folder = Path(other.stdout.readline().strip())
        with scratch_folder(tmp_path):
            assert (folder / "file").exists()
        other.send_signal(signal.SIGKILL)
        other.wait()
    with scratch_folder(tmp_path):
        assert not folder.exists()
