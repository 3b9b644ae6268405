"""`python -m benchmarks.load [ABUSE …]`: what abuse costs ordinary clients. With names their table is printed.

Without names all abuses, then how many submits and polls one API bears, and how soon readers hear of events. That takes
five to six minutes and writes docs/results/load.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

import uvloop

from benchmarks.load import measurements
from benchmarks.load.abuses import ABUSES
from benchmarks.load.measurements import Fanout, Measured, Steady, api, measure, pooled
from benchmarks.pairs import percentile
from benchmarks.report import prose, requested, table, write

ROUNDS, STRETCH_S = 2, 6.0
# All 10,000 that are opened are kept, and none is closed during the measurement.
KEPT = {"MAX_CONNECTIONS": "10000", "HEAD_TIMEOUT_S": "600"}
ALL_KEPT = "idle, all kept"
# The aims: memory and ratio of p99 under abuse; p99 of a steady load; p99 and memory of many readers.
MOST_BYTES, MOST_RATIO = 300 * 2**20, 2.0
STEADY_WITHIN_S = {"submit": 0.050, "poll": 0.030}
HEARD_WITHIN_S, READERS_BYTES = 0.250, 100 * 2**20


def main(names: list[str]) -> None:
    everything = names == list(ABUSES)
    lines = abuse_lines(uvloop.run(_measure(names)), ROUNDS, STRETCH_S)
    if everything:
        lines += load_lines(*uvloop.run(_measure_load()))
        write("load", "What abuse of the API costs its ordinary clients", lines)
    else:
        print("\n".join(lines))


async def _measure(names: Iterable[str]) -> dict[str, Measured]:
    found = {}
    with api() as shipped:
        for name in names:
            own = ABUSES[name].settings
            with api(**own) if own else contextlib.nullcontext(shipped) as one:
                found[name] = await measure(one, name, ROUNDS, STRETCH_S)
                assert one.process.poll() is None, f"the API ended under {name}"
    if "idle" in found:
        with api(**KEPT) as roomy:
            found[ALL_KEPT] = await measure(roomy, "idle", ROUNDS, STRETCH_S)
    return found


async def _measure_load() -> tuple[Steady, Fanout]:
    with api() as one:
        steady = await measurements.measure_steady(one, 4 * STRETCH_S)
    with api() as one:
        return steady, await measurements.measure_fanout(one, 2 * STRETCH_S)


def abuse_lines(found: Mapping[str, Measured], rounds: int, stretch_s: float) -> list[str]:
    rates = ", ".join(f"{name} {rate:g}" for name, rate in measurements.PER_S.items())
    method = f"""Ordinary clients send requests to a real API process over a real Redis, on loopback, each kind on a
        connection of its own and so many times a second: {rates} (a job, `validate_only`, a list of 20). In turns,
        {stretch_s:g} s quiet and {stretch_s:g} s abused, {rounds} rounds and a quiet stretch in the end; the abused one
        begins with the opening of the abuser's connections. A request's time runs from when it was due, so it includes
        the wait for the last one's answer. Clients, API and Redis share two cores; the abuser gets what they leave
        (SCHED_IDLE), as an abuser's machine would be its own."""
    columns = """`ratio of p99` is that of all abused stretches to all quiet ones, and in brackets that of each round.
        `memory` is the most that was resident in an abused stretch, and before the first of them. `of a core`: the
        API's use of it, in the busiest abused stretch. `its answers`: what the abuser received, and how often the API
        hung up instead. `failed`: requests of ordinary clients without an answer of 2xx."""
    head = ("abuse", "requests", "p50, ms", "p99, ms", "ratio of p99", "memory, MiB", "of a core", "its answers")
    return [
        *(line for text in (method, columns) for line in prose(text)),
        *table((*head, "failed"), [_row(name, each) for name, each in found.items()]),
        *("So many connections a second are opened, or send their message again:", ""),
        *[f"- {name}: {_size(name)}." for name in found],
        "",
        *prose(_verdict(found)),
    ]


def load_lines(steady: Steady, fanout: Fanout) -> list[str]:
    recorded = steady.recorded
    text = f"""Submits, each a job that Redis keeps, and polls of one job, {measurements.CONNECTIONS} connections for
        either, for {steady.for_s:g} s, on the same two cores with their clients; timed as above. The API used
        {steady.core_share:.0%} of a core; {recorded.cut} connections broke, {recorded.broken} answers were a 5xx
        without Retry-After."""
    rows = []
    for name, rate in measurements.STEADY_PER_S.items():
        took_s = steady.seconds(name)
        shares = (f"{1e3 * percentile(took_s, share):.2f}" for share in (0.5, 0.99))
        aim = f"{1e3 * STEADY_WITHIN_S[name]:g}"
        rows.append([name, f"{rate:g}", f"{len(took_s) / steady.for_s:.0f}", *shares, aim, f"{len(took_s):,}"])
    p50, p99 = (f"{1e3 * percentile(fanout.delays_s, share):.1f} ms" for share in (0.5, 0.99))
    readers = f"""{fanout.readers:,} readers of all events, {len(fanout.sent_s)} submits, {measurements.SUBMITS_PER_S:g}
        a second: from the submit to a reader's event p50 {p50}, p99 {p99} (aim: {1e3 * HEARD_WITHIN_S:g} ms), n =
        {len(fanout.delays_s):,}; {fanout.missed} were missed. With them the API's memory grew by
        {fanout.grown_bytes / 2**20:.0f} MiB at most (aim: {READERS_BYTES / 2**20:.0f})."""
    head = ("", "sent a second", "answered a second", "p50, ms", "p99, ms", "aim for p99, ms", "n")
    return ["## Without abuse", "", *prose(text), *table(head, rows), *prose(readers)]


def _size(name: str) -> str:
    if name == ALL_KEPT:
        return "the same with room for all of them, and no time limit for a head"
    abuse = ABUSES[name]
    return f"{abuse.what}; {abuse.count:,} connections, {abuse.per_s:,.0f} a second"


def _row(name: str, found: Measured) -> list[str]:
    quiet, abused = found.asked
    received = [f"{status} x {count:,}" for status, count in sorted(found.abuser.statuses.items())]
    hung_up = f"; hung up {found.abuser.cut:,} times" if found.abuser.cut else ""
    stretches = (found.quiet, found.abused)
    return [
        name,
        f"{quiet:,} + {abused:,}",
        *(" → ".join(f"{1e3 * pooled(share, of):.2f}" for of in stretches) for share in (0.5, 0.99)),
        f"{found.ratio:.2f} ({', '.join(f'{ratio:.2f}' for ratio in found.ratios())})",
        f"{found.peak_bytes / 2**20:.0f} (before: {found.first_bytes / 2**20:.0f})",
        f"{found.cpu_share:.0%}",
        (", ".join(received) + hung_up).removeprefix("; ") or "none",
        str(found.failed),
    ]


def _verdict(found: Mapping[str, Measured]) -> str:
    """The aims, and which of them are missed."""
    broken = [f"{name} ({each.broken})" for name, each in found.items() if each.broken]
    large = [f"{name} ({each.peak_bytes / 2**20:.0f})" for name, each in found.items() if each.peak_bytes > MOST_BYTES]
    slow = [f"{name} ({each.ratio:.2f})" for name, each in found.items() if each.ratio >= MOST_RATIO]
    of_broken, of_large, of_slow = (", ".join(names) or "none" for names in (broken, large, slow))
    return f"""No API process ended. Answers of 5xx other than 503 with Retry-After: {of_broken}. More than
        {MOST_BYTES // 2**20} MiB resident: {of_large}. A p99 of {MOST_RATIO:g} times the quiet one or more:
        {of_slow}."""


if __name__ == "__main__":
    main(requested(ABUSES))
