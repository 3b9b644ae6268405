"""`python -m tests.fuzz [--seed N] [--minutes 10]`: half of the time without keys, half as an admin.

0 where every answer was one that the document tells of, else 1; a run of ten minutes or more must also have succeeded
with each operation. If it found nothing, it writes docs/results/fuzz.md.
"""

import argparse
import secrets
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tests.fuzz.asking import ask
from tests.fuzz.house import house

PAGE = Path("docs") / "results" / "fuzz.md"
FULL_MINUTES = 10.0
EXAMPLES = "30"  # of each operation, before sequences begin; both are repeated until the time is up


def main():
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, help="drawn, and printed, without it")
    parser.add_argument("--minutes", type=float, default=FULL_MINUTES)
    asked = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if asked.seed is None else asked.seed
    each_s = max(1, round(asked.minutes * 30))
    runs = {keys: _run(seed, each_s, keys=keys) for keys in (False, True)}
    for told in runs.values():
        sys.stdout.write(told.said)
    page = summary(seed, runs)
    sys.stdout.write(page)
    is_full, held = asked.minutes >= FULL_MINUTES, all(told.held for told in runs.values())
    if is_full and held and not unreached(runs):
        PAGE.write_text(page)
    return 0 if held and not (is_full and unreached(runs)) else 1


def _run(seed, seconds, *, keys):
    with tempfile.TemporaryDirectory(prefix="dyno-fuzz-") as folder, house(Path(folder), keys=keys) as here:
        arguments = ("--seed", str(seed), "--max-time", str(seconds), "--max-examples", EXAMPLES)
        return ask(here, Path(folder), *arguments, within_s=seconds)


def unreached(runs):
    """The operations that succeeded in neither run."""
    return sorted(set.intersection(*(told.operations - told.reached for told in runs.values())))


def summary(seed, runs):
    """A page: what was asked how often, and how it was answered."""
    lines = [
        "# Asked at random",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}: `make fuzz SEED={seed}`, Schemathesis {version('schemathesis')}, all of its "
        "checks. The service and Redis "
        "are real; jobs are ended without being run. "
        f"Never succeeded: {', '.join(f'`{each}`' for each in unreached(runs)) or 'none of the operations'}.",
    ]
    for keys, told in runs.items():
        found = "no answer that the document doesn't tell of" if told.held else "**answers that it doesn't tell of**"
        who = "As an admin" if keys else "Without keys"
        lines += ["", f"## {who}", "", f"{told.cases} requests in {told.seconds:.0f} s: {found}.", ""]
        lines += ["| operation | answers |", "|---|---|"]
        for operation in sorted({name for name, _ in told.answers}):
            by_status = sorted((status, n) for (name, status), n in told.answers.items() if name == operation)
            lines.append(f"| `{operation}` | {', '.join(f'{status}: {number}' for status, number in by_status)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
