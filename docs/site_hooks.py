"""Hooks of mkdocs: folders in the navigation, and links to files that the site doesn't have."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

LINK = re.compile(r"\[[^]]*\]\((\.\./[^)#\s]+)\)")


def on_config(config: Any) -> Any:
    """Replace each folder in the navigation by its pages, in their order."""
    config.nav = [_expanded(entry, Path(config.docs_dir)) for entry in config.nav]
    return config


def _expanded(entry: Any, docs: Path) -> Any:
    if isinstance(entry, dict):
        return {title: _expanded(below, docs) for title, below in entry.items()}
    if isinstance(entry, list):
        return [_expanded(each, docs) for each in entry]
    return (
        [str(path.relative_to(docs)) for path in sorted((docs / entry).glob("*.md"))] if entry.endswith("/") else entry
    )


def on_post_build(config: Any) -> None:
    """Delete files that no page loads, 2 of 8 MB: source maps, and the search's files for other languages."""
    scripts = Path(config.site_dir) / "assets"
    for unused in [*scripts.rglob("*.map"), *(scripts / "javascripts" / "lunr").rglob("*.js")]:
        unused.unlink()


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Show the path of a linked file that is outside docs/, instead of the link."""

    def shown(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), link[1]))
        return link[0] if path.startswith("docs/") else f"`{path}`"

    return LINK.sub(shown, markdown)
