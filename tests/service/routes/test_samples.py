"""The CSV table of raw samples that `GET /v1/jobs/{id}/samples?format=csv` sends."""

from dyno.models.result import RunSamples
from service.artifacts.routes import csv_pieces


def a_run(number, case=None, arm=None):
    cpu_s = [(0.5, 0.125)] * 2
    return RunSamples(
        run=number, case=case, arm=arm, warmup=[0.3], samples=[0.1, 0.2], sample_cpu_s=cpu_s, executions_per_sample=4
    )


def test_every_sample_is_a_line_and_warm_up_has_empty_cpu_times():
    assert "".join(csv_pieces([a_run(0), a_run(1, "n=64, k=2", "second")])).split("\r\n") == [
        "run,case,phase,index,time_s,user_s,system_s,executions,arm",
        "0,,warmup,0,0.3,,,,",
        "0,,sample,0,0.1,0.5,0.125,4,",
        "0,,sample,1,0.2,0.5,0.125,4,",
        '1,"n=64, k=2",warmup,0,0.3,,,,second',
        '1,"n=64, k=2",sample,0,0.1,0.5,0.125,4,second',
        '1,"n=64, k=2",sample,1,0.2,0.5,0.125,4,second',
        "",
    ]


def test_the_table_is_sent_one_run_per_piece():
    assert len([*csv_pieces([a_run(number) for number in range(5)])]) == 1 + 5
