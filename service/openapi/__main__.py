"""`python -m service.openapi`: overwrite docs/openapi.json, the reviewed document, with the current document.

Exit code 1: the document can't be built. Exit code 2: a setting is invalid. In both cases the file isn't changed.
"""

import json
import sys
from pathlib import Path
from typing import Any

from dyno.errors import DynoError
from dyno.settings import WrongSettings, load_settings
from service.app import create_app

REVIEWED = Path("docs") / "openapi.json"


def text(document: dict[str, Any]) -> str:
    """The text of the file: one line per value, so that a diff lists each change."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    try:
        document = create_app(load_settings()).openapi()
    except DynoError as error:
        sys.stderr.write(f"dyno: {error.detail}\n")
        return 2 if isinstance(error, WrongSettings) else 1
    REVIEWED.write_text(text(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
