"""The progress of jobs, runs and sweeps: a live bar in a terminal, otherwise a line for each step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from dyno.formatting import format_duration
from dyno.models.job import Holder, Job
from dyno.models.job import Progress as JobProgress
from dyno.models.sweep import Sweep


class _Live:
    def __init__(self, console: Console, bars: Progress | None) -> None:
        self._console, self._bars = console, bars
        self._bar = None if bars is None else bars.add_task("", total=1.0)
        self._named, self._last = set[str](), object()

    def name(self, thing: object) -> None:
        """Print `thing` if its text hasn't been printed before."""
        if thing is not None and (text := str(thing)) not in self._named:
            self._named.add(text)
            self._print(text)

    def show(self, line: str, description: str, completed: float, step: object = None) -> None:
        """Update the bar. Without a bar, print the line if `step` (by default the line itself) has changed."""
        if self._bars is not None and self._bar is not None:
            self._bars.update(self._bar, description=description, completed=completed)
        elif (step or line) != self._last:
            self._last = step or line
            self._print(line)

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _live(console: Console) -> Iterator[_Live]:
    if not console.is_terminal:
        yield _Live(console, None)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        yield _Live(bars.console, bars)


@contextmanager
def live_progress(console: Console) -> Iterator[Callable[[Job], None]]:
    """A callback for `Client.wait`. In a terminal, it prints the job's id and the process that holds its device."""
    with _live(console) as live:

        def follow(job: Job) -> None:
            if console.is_terminal:
                live.name(job.id)
                live.name(job.queue.held_by)
            live.show(f"{job.id} {_where(job, detail=False)}", _where(job), _fraction(job))

        yield follow


@contextmanager
def live_runs(console: Console) -> Iterator[Callable[[JobProgress], None]]:
    """Like `live_progress`, but for runs without a job."""
    with _live(console) as live:
        yield lambda now: live.show(_run(now, detail=False), _run(now), now.fraction or 0.0)


@contextmanager
def sweep_progress(console: Console) -> Iterator[Callable[[Sweep, Holder | None], None]]:
    """A callback to call with each state of a sweep, and with the process that holds its device. Without a bar, it
    prints a line when a job ends.
    """
    with _live(console) as live:

        def follow(now: Sweep, held_by: Holder | None) -> None:
            live.name(held_by)
            total, state = now.counts["total"], _sweep_state(now)
            live.show(state, state, _ended(now) / total, step=f"{_ended(now)} jobs")

        yield follow


def _where(job: Job, *, detail: bool = True) -> str:
    """The state of a job. `detail`: add figures that change too often for printed lines, such as the time left."""
    now, queue = job.progress, job.queue
    if job.status == "queued":
        held_by = f": {queue.held_by}" if queue.held_by and not detail else ""
        begins = f", begins in about {format_duration(queue.eta_s)}" if detail and queue.eta_s is not None else ""
        return f"queued for {queue.name}{held_by}{begins}"
    if now is None or job.done:
        return str(job.status)
    return f"{job.status}: {_run(now, detail=detail)}"


def _run(now: JobProgress, *, detail: bool = True) -> str:
    line = f"run {now.run} of {now.runs}, {now.phase}"
    if not detail:
        return line
    done = f" {now.completed}" + (f"/{now.total}" if now.total else "") + f" {now.unit}" if now.completed else ""
    return line + done + (f", about {format_duration(now.eta_s)} left" if now.eta_s is not None else "")


def _fraction(job: Job) -> float:
    if job.done:
        return 1.0
    return (job.progress.fraction if job.progress else None) or 0.0


def _ended(now: Sweep) -> int:
    return now.counts["total"] - now.counts.get("queued", 0) - now.counts.get("running", 0)


def _sweep_state(now: Sweep) -> str:
    left = f", about {format_duration(now.eta_s)} left" if now.eta_s and now.eta_s >= 1 else ""
    return f"{now.id} {_ended(now)} of {now.counts['total']} jobs done{left}"
