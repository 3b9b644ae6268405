"""The frame of the `dyno` command: the Typer app, common options, consoles, and errors as exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NoReturn, ParamSpec

import typer
from rich.console import Console

from dyno.client import ConnectionBroken, Refused, ServerUnreachable
from dyno.errors import CommandExit, DynoError
from dyno.settings import WrongSettings

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()
error_console = Console(stderr=True)
USAGE = 2
_START = "; start a Dyno with `dyno up`, or name another: --url, DYNO_URL"
_KEY = "; this command sends what DYNO_API_KEY holds"
_NO_RESULT = "no-result"  # the job failed: what `dyno run` of it ended with, `dyno result` does, too
P = ParamSpec("P")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dyno {version('tensordyno')}")
        raise typer.Exit


@app.callback()
def dyno(
    _: Annotated[bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")] = False,
) -> None:
    """Benchmarks on demand: start Dyno, submit jobs, read and compare results.

    DYNO_URL and DYNO_API_KEY name the service to ask and the key to send.

    Exit codes: 0 fine, 1 failed, 2 wrong usage, 3 refused, 4 nobody there, 5 slower than the first, 130 Ctrl-C.
    """


Url = Annotated[str, typer.Option("--url", envvar="DYNO_URL", help="Where the API is.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def exit_codes(command: Callable[P, None]) -> Callable[P, None]:
    """Dyno's errors become one line on stderr and the exit code that scripts can rely on."""

    @wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except Refused as error:
            has_failed = error.problem.get("code") == _NO_RESULT
            code = CommandExit.FAILED if has_failed else CommandExit.REFUSED
            _fail(error.detail + _KEY * (error.status == HTTPStatus.UNAUTHORIZED), code)
        except ConnectionBroken as error:
            _fail(error.detail + _START, CommandExit.UNREACHABLE)
        except ServerUnreachable as error:
            _fail(error.detail, CommandExit.UNREACHABLE)
        except WrongSettings as error:
            _fail(error.detail, USAGE)
        except DynoError as error:
            _fail(error.detail, CommandExit.FAILED)
        except BrokenPipeError:  # whoever reads has had enough, as `head` has
            raise
        except OSError as error:  # a file or folder that was named
            _fail(str(error), CommandExit.FAILED)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None

    return wrapped


def _fail(detail: str, code: int) -> NoReturn:
    print_error(detail)
    raise typer.Exit(code)


def print_error(detail: str) -> None:
    error_console.print(f"dyno: {detail}", style="red", markup=False, highlight=False, soft_wrap=True)


def print_line(console: Console, sentence: str) -> None:
    """Of any length on one line, and as it is."""
    console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def print_result(data: Any, as_json: bool, human: Callable[[], None]) -> None:
    """`data` as JSON on stdout, or what `human` prints."""
    if as_json:
        typer.echo(json.dumps(data, indent=2))
    else:
        human()


def expand_home(path: Path | None) -> Path | None:
    """With `~` written out: most shells leave it as it is in `--data-dir=~/x`. Raises BadParameter."""
    try:
        return None if path is None else path.expanduser()
    except RuntimeError as error:  # no HOME, and a user without an entry
        raise typer.BadParameter(f"{path}: there is no such home, name it in full") from error
