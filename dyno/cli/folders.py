"""Folders and files that an option names."""

from __future__ import annotations

from pathlib import Path

import typer


def expanded(path: Path | None) -> Path | None:
    """With `~` written out: most shells leave it as it is in `--data-dir=~/x`. Raises BadParameter."""
    try:
        return None if path is None else path.expanduser()
    except RuntimeError as error:  # no HOME, and a user without an entry
        raise typer.BadParameter(f"{path}: there is no such home, name it in full") from error
