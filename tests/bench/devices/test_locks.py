"""One process at a time uses a device, and its lock is released however that process ends."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dyno.bench.devices.discovery import discover
from dyno.bench.devices.locks import DeviceTurn, HeldLocks, hold_locks, lock_paths, shared_lock_paths
from dyno.errors import DeviceBusy, DeviceUnavailable
from dyno.folders import make_shared
from dyno.models.device import Device
from dyno.models.job import Holder
from dyno.settings import Settings
from tests.users import BECOME_NOBODY, NOBODY, as_root

HOLDER = """
import sys
import dyno.bench.devices.locks
held = dyno.bench.devices.locks.hold_locks(sys.argv[1:], 0)
print("held", flush=True)
sys.stdin.read()
"""


def cpu(*cores):
    return Device(id="cpu:x", kind="cpu", model="m", host="h", cores=list(cores), memory_bytes=1)


@pytest.fixture
def settings(tmp_path):
    return Settings(run_dir=tmp_path / "run")


def test_only_overlapping_cpu_devices_share_a_lock(settings):
    both, first, second = (set(lock_paths(cpu(*cores), settings)) for cores in ((0, 1), (0,), (1,)))
    assert both == first | second
    assert not first & second


def test_an_accelerator_has_a_lock_of_its_own(settings):
    gpu = Device(id="gpu:1", kind="gpu", model="m", host="h", cores=[0, 1], memory_bytes=1)
    assert lock_paths(gpu, settings) == [str(settings.run_dir / "gpu-1.lock")]
    both = lock_paths(gpu.model_copy(update={"id": "gpu:0-1"}), settings)
    assert both == [str(settings.run_dir / f"gpu-{number}.lock") for number in (0, 1)]


def test_locks_are_taken_in_the_same_order_for_any_order_of_cores(settings):
    assert lock_paths(cpu(10, 2), settings) == lock_paths(cpu(2, 10), settings)


def test_a_held_device_is_refused_until_its_release_and_the_error_names_the_holder(settings):
    paths = lock_paths(discover("cpu", settings), settings)
    held = hold_locks(paths, 0)
    with pytest.raises(DeviceUnavailable, match=f"held by process {os.getpid()}"):
        hold_locks(paths, 0.02)
    held.release()
    held.release()
    with hold_locks(paths, 0):
        pass


def test_a_refusal_leaves_no_part_of_the_device_locked(settings):
    first, second = lock_paths(cpu(0, 1), settings)
    with hold_locks([second], 0):
        with pytest.raises(DeviceUnavailable):
            hold_locks([first, second], 0)
        hold_locks([first], 0).release()


def test_the_lock_of_a_killed_process_is_free(settings):
    paths = lock_paths(cpu(0), settings)
    command = [sys.executable, "-P", "-c", HOLDER, *paths]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(DeviceUnavailable, match=f"held by process {holder.pid}"):
            hold_locks(paths, 0)
        holder.send_signal(signal.SIGKILL)
        holder.wait(60)
        hold_locks(paths, 10).release()


def test_a_symbolic_link_in_place_of_a_lock_is_not_followed(settings, tmp_path):
    (path,) = lock_paths(cpu(0), settings)
    Path(path).parent.mkdir()
    (tmp_path / "precious").write_text("keep")
    Path(path).symlink_to(tmp_path / "precious")
    with pytest.raises(DeviceUnavailable, match="symbolic links"):
        hold_locks([path], 0)
    assert (tmp_path / "precious").read_text() == "keep"


def test_the_error_for_a_lock_that_can_not_be_opened_names_the_setting(settings):
    free, taken = lock_paths(cpu(0, 1), settings)
    Path(taken).mkdir(parents=True)  # root may open another user's file, but not a folder
    with pytest.raises(DeviceUnavailable, match=rf"{taken}.*DYNO_RUN_DIR"):
        hold_locks([free, taken], 0)
    hold_locks([free], 0).release()


def test_the_error_for_a_lock_folder_that_can_not_be_created_names_it(tmp_path):
    (tmp_path / "file").touch()
    (path,) = lock_paths(cpu(0), Settings(run_dir=tmp_path / "file" / "run"))
    with pytest.raises(DeviceUnavailable, match=path):
        hold_locks([path], 0)


def test_a_refusal_names_the_job_of_the_holder(settings):
    paths = lock_paths(cpu(0), settings)
    with hold_locks(paths, 0, job="job_1"), pytest.raises(DeviceBusy, match="which runs job_1") as refused:
        hold_locks(paths, 0)
    assert (refused.value.pid, refused.value.job) == (os.getpid(), "job_1")
    assert str(refused.value.command) == " ".join([Path(sys.orig_argv[0]).name, *sys.orig_argv[1:]])[:200]


def test_the_lock_of_an_older_version_names_only_its_process(settings):
    [path] = lock_paths(cpu(0), settings)
    with hold_locks([path], 0):
        Path(path).write_text("77")
        with pytest.raises(DeviceBusy) as refused:
            hold_locks([path], 0)
    assert (refused.value.pid, refused.value.command, refused.value.job) == (77, None, None)


def test_a_runner_without_a_turn_is_hung_a_minute_after_it_was_found(settings):
    times = iter((100.0, 159.0, 160.0))
    turn = DeviceTurn(cpu(0), settings, clock=lambda: next(times))
    with hold_locks(lock_paths(cpu(0), settings), 0, job="job_1"):
        found = [turn.take() for _ in range(3)]
    assert [isinstance(holder, Holder) and holder.hung for holder in found] == [False, False, True]
    taken(turn).release()


def test_a_worker_with_the_turn_is_never_hung(settings, monkeypatch):
    monkeypatch.setattr("dyno.bench.devices.locks.HUNG_AFTER_S", 0.0)
    first, second = (DeviceTurn(cpu(0), settings) for _ in range(2))
    with taken(first), hold_locks(lock_paths(cpu(0), settings), 0, job="job_1"):
        for _ in range(2):
            holder = second.take()
            assert isinstance(holder, Holder)
            assert not holder.hung
    second.leave()


def test_a_device_is_one_worker_s_at_a_time_and_names_its_holder(settings):
    both, one, other = (DeviceTurn(cpu(*cores), settings) for cores in ((0, 1), (0,), (1,)))
    mine = taken(both)
    mine.note("job_1")
    found = one.take()
    assert isinstance(found, Holder)
    assert (found.device, found.pid, found.job) == ("cpu:x@h", os.getpid(), "job_1")
    mine.release()
    with taken(one), taken(other):
        assert isinstance(both.take(), Holder)
    both.leave()


def test_the_worker_that_waited_longest_has_the_next_turn(settings):
    first, second = DeviceTurn(cpu(0), settings), DeviceTurn(cpu(0), settings)
    for _ in range(3):
        with taken(first):
            assert isinstance(second.take(), Holder)
        assert isinstance(first.take(), Holder), "although the device is free now"
        taken(second).release()
        first, second = second, first


def test_a_worker_that_leaves_the_line_makes_room_for_the_others(settings):
    first, second = DeviceTurn(cpu(0), settings), DeviceTurn(cpu(0), settings)
    with taken(first):
        assert isinstance(second.take(), Holder)
    second.leave()
    taken(first).release()


def test_a_worker_gets_its_turn_when_the_last_runner_has_ended(settings):
    turn, paths = DeviceTurn(cpu(0), settings), lock_paths(cpu(0), settings)
    with hold_locks(paths, 0, job="job_1"):
        found = turn.take()
        assert isinstance(found, Holder)
        assert found.job == "job_1"
    with taken(turn):
        hold_locks(paths, 0).release()


def taken(turn):
    found = turn.take()
    assert isinstance(found, HeldLocks)
    return found


def emulated(number):
    return Device(
        id=f"tpu:{number}", kind="tpu", model="m", host="h", cores=[0, 1], memory_bytes=1, emulated=True, units=8
    )


def test_emulated_devices_share_their_cores_with_each_other_but_not_with_a_cpu_device(settings):
    first, second = emulated(0), emulated(1)
    with (
        hold_locks(lock_paths(first, settings), 0, shared_lock_paths(first, settings)),
        hold_locks(lock_paths(second, settings), 0, shared_lock_paths(second, settings)),
        pytest.raises(DeviceUnavailable, match="cpu-00001"),
    ):
        hold_locks(lock_paths(cpu(1), settings), 0.02)
    with hold_locks(lock_paths(cpu(1), settings), 0), pytest.raises(DeviceUnavailable, match="cpu-00001"):
        hold_locks(lock_paths(first, settings), 0.02, shared_lock_paths(first, settings))


def test_one_process_at_a_time_uses_an_emulated_device_and_a_real_one_shares_nothing(settings):
    with hold_locks(lock_paths(emulated(0), settings), 0), pytest.raises(DeviceUnavailable, match="tpu-0"):
        hold_locks(lock_paths(emulated(0), settings), 0.02)
    assert shared_lock_paths(cpu(0), settings) == []


HOLDER_AS_NOBODY = f"""
import sys
import dyno.bench.devices.locks
{BECOME_NOBODY}
held = dyno.bench.devices.locks.hold_locks(sys.argv[1:], 0)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def entered():
    """A run folder that every user can reach: pytest's folders are private."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Settings(run_dir=Path(folder) / "run")


@as_root
def test_dynos_of_two_users_see_each_others_locks(entered):
    paths = lock_paths(cpu(0), entered)
    with hold_locks(paths, 0):  # creates folder and file, as root
        pass
    command = [sys.executable, "-P", "-c", HOLDER_AS_NOBODY, *paths]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(DeviceBusy, match=f"held by process {holder.pid}"):
            hold_locks(paths, 0)
        holder.stdin.close()
    with hold_locks(paths, 10):
        refused = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert f"held by process {os.getpid()}" in refused.stderr


@as_root
def test_files_that_another_user_made_are_shared_too(entered):
    paths = lock_paths(cpu(0), entered)
    make_shared(entered.run_dir)
    command = [sys.executable, "-P", "-c", HOLDER_AS_NOBODY, *paths]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        assert Path(paths[0]).stat().st_uid == NOBODY
        with pytest.raises(DeviceBusy):
            hold_locks(paths, 0)
        holder.stdin.close()
    hold_locks(paths, 10).release()


def test_folder_and_files_are_for_all_users_whatever_the_umask(settings):
    [path] = lock_paths(cpu(0), settings)
    before = os.umask(0o077)
    try:
        hold_locks([path], 0).release()
    finally:
        os.umask(before)
    assert stat.S_IMODE(settings.run_dir.stat().st_mode) == 0o1777
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o666


def test_a_file_whose_creator_died_before_it_shared_it_is_shared(settings):
    [path] = lock_paths(cpu(0), settings)
    settings.run_dir.mkdir()
    Path(path).touch(mode=0o600)
    hold_locks([path], 0).release()
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o666


def test_a_folder_that_the_operator_made_keeps_its_mode(settings):
    settings.run_dir.mkdir(mode=0o700)
    hold_locks(lock_paths(cpu(0), settings), 0).release()
    assert stat.S_IMODE(settings.run_dir.stat().st_mode) == 0o700


def test_a_hard_link_in_place_of_a_lock_is_not_written(settings, tmp_path):
    [path] = lock_paths(cpu(0), settings)
    Path(path).parent.mkdir()
    (tmp_path / "precious").write_text("keep")
    Path(path).hardlink_to(tmp_path / "precious")
    with pytest.raises(DeviceUnavailable, match="hard links"):
        hold_locks([path], 0)
    assert (tmp_path / "precious").read_text() == "keep"


def test_a_folder_in_which_others_may_delete_files_is_refused(settings):
    settings.run_dir.mkdir()
    settings.run_dir.chmod(0o777)
    with pytest.raises(DeviceUnavailable, match=rf"chmod 1777 {settings.run_dir}.*DYNO_RUN_DIR"):
        hold_locks(lock_paths(cpu(0), settings), 0)


def test_text_of_another_user_in_a_lock_file_is_printable(settings):
    [path] = lock_paths(cpu(0), settings)
    with hold_locks([path], 0):
        Path(path).write_text("99999999999999\njob_\x1b[2J\ncommand\x07\u202e\n")
        with pytest.raises(DeviceBusy) as refused:
            hold_locks([path], 0)
    assert (refused.value.pid, refused.value.job, refused.value.command) == (None, "job_?[2J", "command??")
    assert refused.value.detail.isprintable()
