"""`dyno demo`: the main job end to end, over HTTP, on this machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pydantic import JsonValue
from rich.console import Console

from dyno import render
from dyno.client import Client
from dyno.errors import ServerUnavailable
from dyno.job import Job
from dyno.processes import Stack
from dyno.up import together, wait_ready

MATMUL: dict[str, JsonValue] = {
    "workload": "matmul",
    "params": {"n": 2000, "repeats": 1},  # a tenth of a second on two common cores
    "device": "cpu",
    "measure": {"max_s": 3},
    "labels": {"from": "demo"},
}
# A short run on the digits that ship: 8,000 to train on. Three processes, to stay well under 90 s in all.
MNIST: dict[str, JsonValue] = {
    "workload": "mnist_cnn",
    "params": {"epochs": 3, "batch_size": 256, "jit_compile": False},  # to measure it would take 5 s
    "device": "cpu",
    "measure": {"processes": 3, "max_s": 4},
    "labels": {"from": "demo"},
}


def _show_while_alive(stack: Stack, show: Callable[[Job], None], job: Job) -> None:
    """Nobody starts a dead part of a demo again, so waiting on would be for ever."""
    if (part := stack.dead()) is not None:
        raise ServerUnavailable(f"{part.name} has ended")
    show(job)


def run(console: Console, *, device: str = "cpu") -> None:
    """Start a Dyno of its own, run both jobs, print what they answer. Leaves no process behind."""
    with together(port=0, data_dir=None, devices=[device], say=console.print) as (stack, url):
        with Client(url) as client:
            with console.status("starting the API and one CPU worker (the worker imports TensorFlow once)"):
                wait_ready(stack, client, want_devices=1)
            console.print(f"API on {url}")
            for spec in (MATMUL, MNIST):
                console.rule(f"POST {url}/v1/jobs  {spec['workload']}")
                console.print_json(data=spec)
                with render.following(console) as show:
                    result = client.run(spec, partial(_show_while_alive, stack, show))
                render.result(console, result)
        console.rule()
        console.print("This was one Dyno of its own, gone now. `dyno up` starts one that stays, on port 8000.")
