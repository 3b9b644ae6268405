"""Files in the outbox: damaged files, files of other versions, and too many files."""

import os
import re
import time
from pathlib import Path

import pytest

from dyno.models.spec import MAX_EXPIRES_IN_S, Spec
from dyno.store.leases import Claim
from tests.workers.outcomes import outcome_files, succeeded
from workers.outbox import Outbox


def claim_of(job_id):
    return Claim(
        job_id=job_id,
        spec=Spec.model_validate({"workload": "matmul", "device": "cpu"}),
        attempt=1,
        token=f"token of {job_id}",
        queue="cpu",
        left_behind=0,
        cancel_requested=False,
        device="cpu:0-0@alpha",
    )


def keep(outbox, job_id="job_one"):
    claim = claim_of(job_id)
    return outbox.keep(succeeded(claim), claim)


def jobs_in(outbox):
    return [entry.claim.job_id for entry in outbox.waiting()]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "spool"


@pytest.fixture
def outbox(folder):
    return Outbox(folder, "dyno")


def damage(folder, whole):
    """Creates all kinds of invalid files; returns their names."""
    header, _ = whole.split(b"\n")[:2]
    texts = {
        "empty": b"",
        "noise": os.urandom(1000),
        "cut": whole[: len(whole) // 2],
        "other": header + b"\n[]\n",
        "unsaid": header.replace(b'"token"', b'"taken"') + b"\n{}\n",
    }
    for name, text in texts.items():
        (folder / f"{name}.ending").write_bytes(text)
    os.mkfifo(folder / "pipe.ending")
    (folder / "folder.ending").mkdir()
    (folder / "link.ending").symlink_to("/dev/zero")
    return {*texts, "pipe", "folder", "link"}


def test_damaged_files_are_set_aside_and_do_not_block_others(outbox, folder):
    whole = keep(outbox)
    names = damage(folder, whole.read_bytes())
    assert jobs_in(outbox) == ["job_one"]
    assert {path.name for path in folder.iterdir()} == {whole.name} | {f"{name}.aside" for name in names}


@pytest.mark.parametrize(
    ("ours", "theirs", "is_newer"),
    [
        ("0.1.0", "0.2.0", True),
        ("0.9.0", "0.10.0", True),
        ("0.9.0", "1.0.dev3", True),
        ("0.2.0", "0.1.0", False),
        ("0.2.0", "0.2.0.dev1", False),
    ],
)
def test_an_outcome_of_a_newer_version_waits_for_a_worker_of_that_version(ours, theirs, is_newer, folder, caplog):
    newer = Outbox(folder, "dyno", version=theirs)
    path = keep(newer)
    outbox = Outbox(folder, "dyno", version=ours)
    for _ in range(2):
        assert jobs_in(outbox) == ([] if is_newer else ["job_one"])
    assert caplog.text.count("spool-newer") == is_newer
    assert outcome_files(folder) == [path]
    assert jobs_in(newer) == ["job_one"]


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        (b'"schema":1', b'"schema":99'),
        (b"^.*\n", b'{"schema":99,"about":[]}\n'),
        (b'"Succeeded"', b'"Ascended"'),
    ],
)
def test_a_form_that_is_not_known_yet_is_left_as_it_is(written, instead, outbox, folder, caplog):
    path = keep(outbox)
    unknown = re.sub(written, instead, path.read_bytes())
    path.write_bytes(unknown)
    keep(outbox, "job_two")
    for _ in range(2):
        assert jobs_in(outbox) == ["job_two"]
    assert path.read_bytes() == unknown
    assert caplog.text.count("spool-newer") == 1


def test_no_folder_on_the_way_to_an_outcome_is_lost_with_the_power(tmp_path, monkeypatch):
    synced, sync = list[Path](), os.fsync

    def noted(descriptor):
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    outbox = Outbox(tmp_path / "share" / "dyno" / "spool", "dyno")
    path = keep(outbox)
    assert {tmp_path, *(folder for folder in path.parents if tmp_path in folder.parents)} <= {*synced}
    synced.clear()
    assert keep(outbox, "job_two").parent == path.parent
    assert synced[1:] == [path.parent], "once is enough"


def test_a_full_outbox_takes_no_more_and_makes_room_of_what_was_set_aside_only(outbox, folder):
    waiting = keep(outbox)
    size = waiting.stat().st_size
    aside = folder / "old.aside"
    aside.write_bytes(bytes(2 * size))
    assert keep(Outbox(folder, "dyno", 3 * size), "job_two").exists()
    assert not aside.exists()
    with pytest.raises(OSError, match="spool is full"):
        keep(Outbox(folder, "dyno", 2 * size), "job_six")
    assert waiting.exists()


def test_outcomes_whose_jobs_have_expired_everywhere_make_room_when_it_is_short_the_oldest_first(outbox, folder):
    paths = [keep(outbox, f"job_{name}") for name in ("oldest", "older!", "recent")]
    size = max(path.stat().st_size for path in paths)
    now_s = time.time()
    for path, age_s in zip(paths, (2 * MAX_EXPIRES_IN_S, MAX_EXPIRES_IN_S + 60, MAX_EXPIRES_IN_S - 60), strict=True):
        os.utime(path, (now_s, now_s - age_s))
    keep(Outbox(folder, "dyno", 4 * size), "job_new")
    assert all(path.exists() for path in paths), "there was room"
    keep(Outbox(folder, "dyno", 4 * size), "job_now")
    assert [path.exists() for path in paths] == [False, True, True]
    keep(Outbox(folder, "dyno", 4 * size), "job_ten")
    assert [path.exists() for path in paths] == [False, False, True]
    with pytest.raises(OSError, match="spool is full"):
        keep(Outbox(folder, "dyno", 4 * size), "job_six")


def test_a_file_that_goes_while_room_is_looked_for_keeps_no_outcome_from_its_place(outbox, folder, monkeypatch):
    told, listed = keep(outbox), Path.iterdir

    def listed_before_it_went(of):
        names = list(listed(of))
        told.unlink()
        return iter(names)

    monkeypatch.setattr(Path, "iterdir", listed_before_it_went)
    kept = keep(outbox, "job_two")
    assert outcome_files(folder) == [kept]


def test_old_unfinished_files_are_deleted(outbox, folder):
    folder.mkdir()
    old, new = folder / "old.1.part", folder / "new.2.part"
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    assert jobs_in(outbox) == []
    assert list(folder.iterdir()) == [new]


def test_it_counts_what_is_undelivered_or_damaged_and_no_half_written_file(outbox, folder):
    assert outbox.count() == 0
    kept = keep(outbox)
    (folder / "job_two.1.0.1.part").write_text("half")
    assert outbox.count() == 1
    (folder / "job_two.1.0.ending").write_text("damaged")
    assert jobs_in(outbox) == ["job_one"]
    assert outbox.count() == 2, "the damaged one is set aside"
    outbox.drop(kept)
    assert outbox.count() == 1
