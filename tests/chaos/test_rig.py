"""The rig's parts: started again when they die, left alone when they are meant to be down, and all ended."""

import signal

import psutil

from tests.chaos.parts import SLEEPS, looked_up, part, process_of, rig_of, until, with_parts

DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); {SLEEPS}"


def test_a_part_that_dies_by_itself_is_started_again_and_reported(tmp_path):
    async def run(rig):
        first = process_of(rig, "one")
        first.send_signal(signal.SIGSEGV)
        await until(lambda: process_of(rig, "one") != first)

    rig = rig_of(tmp_path, "one", "other")
    with_parts(rig, run)
    assert (rig.died, rig.stuck) == ([f"one ended by itself with exit code {-signal.SIGSEGV}"], [])


def test_a_part_that_faults_end_stays_down_until_it_is_started_and_is_started_once(tmp_path):
    async def run(rig):
        first = process_of(rig, "one")
        rig.end("one", signal.SIGKILL)
        rig.end("one", signal.SIGTERM)
        process_of(rig, "other").kill()
        await until(lambda: len(rig.died) == 1)
        assert process_of(rig, "one") == first
        await rig.start("one")
        started = process_of(rig, "one")
        await rig.start("one")
        assert first != started == process_of(rig, "one")

    rig = rig_of(tmp_path, "one", "other")
    with_parts(rig, run)
    assert [each.split()[0] for each in rig.died] == ["other"]
    assert rig.stuck == []


def test_a_part_that_a_fault_starts_while_it_is_about_to_be_restarted_runs_once(tmp_path):
    async def run(rig):
        rig.send("one", signal.SIGKILL)
        await until(lambda: rig.died)
        rig.end("one", signal.SIGKILL)
        await rig.start("one")
        started, other = process_of(rig, "one"), process_of(rig, "other")
        rig.send("other", signal.SIGKILL)
        await until(lambda: process_of(rig, "other") != other)  # by then the rig has looked at the first one
        assert process_of(rig, "one") == started

    rig = rig_of(tmp_path, "one", "other")
    with_parts(rig, run)
    assert [each.split()[0] for each in rig.died] == ["one", "other"]


def test_a_stopped_part_is_ended_and_one_that_ignores_term_is_killed_and_reported(tmp_path, monkeypatch):
    monkeypatch.setattr("chaos.rig._STOP_S", 1.0)
    output, rig = tmp_path / "output", rig_of(tmp_path, "stopped")

    async def run(rig):
        rig.send("stopped", signal.SIGSTOP)
        await until(lambda: looked_up(rig, "stopped").status() == psutil.STATUS_STOPPED)
        await until(lambda: "deaf" in output.read_text())

    with output.open("w") as file:
        rig.parts["deaf"] = part(rig, DEAF, file.fileno())
        with_parts(rig, run)
    assert [each.split()[0] for each in rig.stuck] == ["deaf"]
