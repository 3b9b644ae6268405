"""Shared code of the `dyno` commands: the Typer app, common options, consoles, and errors as exit codes.

`command` registers each command. Two params of a command are not options: `client` is a client of the service at
--url, and `show` prints the output, as JSON with --json.
"""

import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import wraps
from http import HTTPStatus
from importlib.metadata import version
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from pydantic import BaseModel, JsonValue
from rich.console import Console

from dyno.client import DEFAULT_URL, Client, ConnectionBroken, Refused, ServerUnreachable
from dyno.errors import CommandExit, DynoError
from dyno.settings import WrongSettings

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
console = Console()
error_console = Console(stderr=True)
USAGE = 2
_START = "; start Dyno with `dyno up`, or set --url or DYNO_URL"
_KEY = "; set DYNO_API_KEY to a valid key"
_OF_THE_SERVICE = ("/baseline", "/job", "/params/weights")  # fields that name objects stored in the service
_NO_RESULT = "no-result"  # the job failed; `dyno result` exits with the same code as the job's `dyno run`
T = TypeVar("T")


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"dyno {version('tensordyno')}")
        raise typer.Exit


@app.callback()
def dyno(
    _: Annotated[bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")] = False,
) -> None:
    """Benchmarks on demand: start Dyno, submit jobs, read and compare results.

    DYNO_URL is the URL of the service, DYNO_API_KEY your API key.

    Exit codes: 0 success, 1 failed, 2 wrong usage, 3 refused by the service, 4 service unreachable, 5 slower than the
    first result or than the baseline allows, 6 can't be compared (untrusted, or other work or hardware), 130 Ctrl-C.
    """


Url = Annotated[str, typer.Option("--url", envvar="DYNO_URL", help="URL of the API.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


class Show:
    """Prints the output of a command."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.progress = error_console if as_json else console  # with --json, only the JSON goes to stdout

    def __call__(self, answer: T, human: str | Callable[[Console, T], None]) -> None:
        """Print a model, a list of models, or a JSON value: as JSON on stdout, or for people. `human`: a sentence, or a
        function that prints the answer on a console.
        """
        if self.as_json:
            typer.echo(json.dumps(_document(answer), indent=2))
        elif isinstance(human, str):
            print_line(console, human)
        else:
            human(console, answer)


_SERVICES = {
    "client": Parameter("url", Parameter.KEYWORD_ONLY, default=DEFAULT_URL, annotation=Url),
    "show": Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=AsJson),
}
Command = TypeVar("Command", bound=Callable[..., None])


def command(group: typer.Typer = app, name: str | None = None, **settings: Any) -> Callable[[Command], Command]:
    """Add the function to the group as a command. Its other params are options; a dataclass becomes several options."""

    def add(function: Command) -> Command:
        params = signature(function).parameters
        kinds: dict[str, Any] = {name: param.annotation for name, param in params.items()}
        several: dict[str, Any] = {name: kind for name, kind in kinds.items() if dataclasses.is_dataclass(kind)}
        options = [*_options(params.values()), *(option for name, option in _SERVICES.items() if name in params)]

        @wraps(function)
        def called(**given: Any) -> None:
            with _exit_codes(), ExitStack() as stack:
                if "show" in params:
                    given["show"] = Show(given.pop("as_json"))
                if "client" in params:
                    given["client"] = stack.enter_context(retrying_client(given.pop("url")))
                for param, kind in several.items():
                    given[param] = kind(**{field.name: given.pop(field.name) for field in dataclasses.fields(kind)})
                function(**given)

        called.__signature__ = signature(function).replace(parameters=options)  # type: ignore[attr-defined]
        called.__annotations__ = {option.name: option.annotation for option in options}
        group.command(name, **settings)(called)
        return function

    return add


def _options(params: Iterable[Parameter]) -> Iterator[Parameter]:
    for param in params:
        if dataclasses.is_dataclass(param.annotation):
            for field in dataclasses.fields(param.annotation):
                yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        elif param.name not in _SERVICES:
            yield param.replace(kind=Parameter.KEYWORD_ONLY)


def retrying_client(url: str) -> Client:
    """A client that says on stderr when a call starts to wait for the service."""
    return Client(url, away=lambda error: print_line(error_console, f"waiting for the service: {error.detail}"))


@contextmanager
def _exit_codes() -> Iterator[None]:
    """Turn Dyno's errors into one line on stderr and an exit code that scripts can rely on."""
    try:
        yield
    except Refused as error:
        code = CommandExit.FAILED if error.problem.get("code") == _NO_RESULT else refusal_code(error.problem)
        _fail(as_options(error.detail) + _KEY * (error.status == HTTPStatus.UNAUTHORIZED), code)
    except ConnectionBroken as error:
        _fail(error.detail + _START, CommandExit.UNREACHABLE)
    except ServerUnreachable as error:
        _fail(error.detail, CommandExit.UNREACHABLE)
    except WrongSettings as error:
        _fail(error.detail, USAGE)
    except DynoError as error:
        _fail(error.detail, CommandExit.FAILED)
    except BrokenPipeError:  # the reading program closed the pipe, as `head` does
        raise
    except OSError as error:  # for example a file or folder in an option
        _fail(str(error), CommandExit.FAILED)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def refusal_code(problem: Mapping[str, Any]) -> int:
    """USAGE if the command line itself is wrong (a value out of range), else REFUSED (an unknown job, for example)."""
    code, fields = str(problem.get("code")), [str(error.get("pointer")) for error in problem.get("errors") or []]
    is_invalid = code.startswith("invalid-") and code != "invalid-import"  # its fields are lines of a file
    is_usage = is_invalid and not any(field.startswith(_OF_THE_SERVICE) for field in fields)
    return USAGE if is_usage or code == "workload-not-found" else CommandExit.REFUSED


_PARAM = re.compile(r"(?<![\w/])/params/(\w+)")
_MEASURE = re.compile(r"(?<![\w/])/measure/(\w+)")
_FIELD = re.compile(r"(?<![\w/])/(workload|device|framework|replicas|seed|baseline)(?=:)")


def as_options(detail: str) -> str:
    """The service's sentence about a spec, with fields of the spec replaced by options of `dyno run`."""
    detail = detail.replace('set "queue_if_absent": true', "add --queue-if-absent")
    detail = _PARAM.sub(lambda match: "--" + match[1].replace("_", "-"), detail)
    return _FIELD.sub(r"--\1", _MEASURE.sub(_measure_option, detail)).replace("--workload", "the workload")


def _measure_option(match: re.Match[str]) -> str:
    return {"processes": "--processes", "budget_s": "--budget"}.get(match[1], f"--measure {match[1]}")


def _fail(detail: str, code: int) -> NoReturn:
    print_error(detail)
    raise typer.Exit(code)


def print_error(detail: str) -> None:
    error_console.print(f"dyno: {detail}", style="red", markup=False, highlight=False, soft_wrap=True)


def print_line(console: Console, sentence: str) -> None:
    """Print a sentence of any length on one line, without markup."""
    console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def _document(answer: Any) -> JsonValue:
    if isinstance(answer, list):
        return [*map(_document, answer)]
    return answer.model_dump(mode="json", by_alias=True) if isinstance(answer, BaseModel) else answer


def expand_home(path: Path | None) -> Path | None:
    """Expand `~`, which most shells don't do in `--data-dir=~/x`. Raises BadParameter."""
    try:
        return None if path is None else path.expanduser()
    except RuntimeError as error:  # no HOME, and no passwd entry for the user
        raise typer.BadParameter(f"{path}: can't expand ~ to a home directory; name the path in full") from error


def save(path: Path, content: bytes) -> None:
    """Write a file, and say so on stderr."""
    path.write_bytes(content)
    error_console.print(f"saved {path}", markup=False, highlight=False, soft_wrap=True)


def file_to_write(path: Path | None) -> Path | None:
    """Expand `~`, and check the folder before a command that may take hours. Raises BadParameter."""
    expanded = expand_home(path)
    if expanded is not None and not expanded.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {expanded.parent}")
    return expanded


def picture_to_write(path: Path | None) -> Path | None:
    """Like `file_to_write`, for a picture. Raises BadParameter."""
    expanded = file_to_write(path)
    if expanded is not None and expanded.suffix not in (".svg", ".png"):
        raise typer.BadParameter(f"{expanded} must end in .svg or .png")
    return expanded


def finite(value: float | None) -> float | None:
    """Raises BadParameter for NaN and infinity, which JSON can't hold."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} isn't a finite number")
    return value


def given_options(context: typer.Context) -> list[str]:
    """The options and extra words on the command line."""
    options = [
        name for name in context.params if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    ]
    return [*(f"--{name.replace('_', '-')}" for name in options), *context.args]
