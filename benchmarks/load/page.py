"""docs/results/load.md."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.load.abuses import ABUSES
from benchmarks.load.fanout import Told
from benchmarks.load.measured import PER_S, Measured
from benchmarks.load.steady import LINES, Steady
from benchmarks.report import prose, table, write

ALL_KEPT = "idle, all kept"
MOST_BYTES, MOST_RATIO = 300 * 2**20, 2.0  # the aims
HEAD = ("abuse", "questions", "p50, ms", "p99, ms", "ratio of p99", "memory, MiB", "of a core", "its answers", "failed")
STEADY_HEAD = ("", "asked a second", "answered a second", "p50, ms", "p99, ms", "aim for p99, ms", "n")


def publish(lines: list[str]) -> None:
    write("load", "What abuse of the API costs its ordinary callers", lines)


def lines(found: Mapping[str, Measured], rounds: int, stretch_s: float) -> list[str]:
    rates = ", ".join(f"{name} {rate:g}" for name, rate in PER_S.items())
    return [
        *prose(
            f"""Ordinary callers ask a real API process over a real Redis, on loopback, each kind on a connection of its
            own and so many times a second: {rates} (a job, `validate_only`, a list of 20). In turns, {stretch_s:g} s
            quiet and {stretch_s:g} s abused, {rounds} rounds and a quiet stretch in the end; the abused one begins
            with the abuse, its opening of connections included. A question's time runs from when it was due, so one
            that waits for the last one's answer counts its wait. Callers, API and Redis share two cores; the
            abuser gets what they leave (SCHED_IDLE), as an abuser's machine would be its own."""
        ),
        *prose(
            """`ratio of p99` is that of all abused stretches to all quiet ones, and in brackets that of each round.
            `memory` is the most that was resident in an abused stretch, and what was when this abuse had not begun.
            `of a core`: the API's use of it, in the busiest abused stretch. `its answers`: what the abuser was
            answered, and how often it was hung up on instead. `failed`: questions of ordinary callers that got no
            answer, or another than 2xx."""
        ),
        *table(HEAD, [_row(name, each) for name, each in found.items()]),
        "So many a second are opened, or where they do it again and again, it is done:",
        "",
        *[f"- {name}: {_size(name)}." for name in found],
        "",
        *prose(_verdict(found)),
    ]


def ordinary(steady: Steady, told: Told) -> list[str]:
    return [
        "## Without abuse",
        "",
        *prose(
            f"""Submits, each a job that Redis keeps, and polls of one job, {LINES} connections for either, for
            {steady.for_s:g} s, on the same two cores with their callers; timed as above. The API used
            {steady.core_share:.0%} of a core; {steady.noted.cut} connections broke, {steady.noted.broken} answers were
            a 5xx without Retry-After."""
        ),
        *table(STEADY_HEAD, steady.rows()),
        *prose(told.sentence()),
    ]


def _size(name: str) -> str:
    if name == ALL_KEPT:
        return "the same where there are places for all of them, and no time limit for a head"
    abuse = ABUSES[name]
    return f"{abuse.what}; {abuse.count:,} connections, {abuse.per_s:,.0f} a second"


def _row(name: str, found: Measured) -> tuple[str, ...]:
    quiet, abused = found.asked
    medians = (found.pooled(0.5, found.quiet), found.pooled(0.5, found.abused))
    tails = (found.pooled(0.99, found.quiet), found.pooled(0.99, found.abused))
    each = ", ".join(f"{ratio:.2f}" for ratio in found.ratios())
    said = ", ".join(f"{status} x {count:,}" for status, count in sorted(found.theirs.items()))
    return (
        name,
        f"{quiet:,} + {abused:,}",
        " → ".join(f"{1e3 * value:.2f}" for value in medians),
        " → ".join(f"{1e3 * value:.2f}" for value in tails),
        f"{found.ratio:.2f} ({each})",
        f"{found.peak_bytes / 2**20:.0f} (before: {found.first_bytes / 2**20:.0f})",
        f"{found.cpu_share:.0%}",
        "; ".join(part for part in (said, f"hung up {found.cut:,} times" if found.cut else "") if part) or "none",
        str(found.failed),
    )


def _verdict(found: Mapping[str, Measured]) -> str:
    """The aims, and which of them are missed."""
    slow = [f"{name} ({each.ratio:.2f})" for name, each in found.items() if each.ratio >= MOST_RATIO]
    large = [f"{name} ({each.peak_bytes / 2**20:.0f})" for name, each in found.items() if each.peak_bytes > MOST_BYTES]
    broken = [f"{name} ({each.broken})" for name, each in found.items() if each.broken]
    return (
        "No API process ended. Answers of 5xx other than 503 with Retry-After: "
        f"{_listed(broken)}. More than {MOST_BYTES // 2**20} MiB resident: {_listed(large)}. A p99 of {MOST_RATIO:g} "
        f"times the quiet one or more: {_listed(slow)}."
    )


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"
