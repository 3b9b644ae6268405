"""`python -m service.openapi [--breaking]`: write the current document over the reviewed one, docs/openapi.json.

Exit code 1: the change would break clients and `--breaking` isn't given, or the document can't be built; nothing is
written. Exit code 2: a setting is invalid.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from dyno.errors import DynoError
from dyno.settings import WrongSettings, load_settings
from service.app import create_app
from service.openapi.compatibility import breaks

REVIEWED = Path("docs") / "openapi.json"


def text(document: dict[str, Any]) -> str:
    """The document as in the file: one line per value, so that reviews see each change."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="service.openapi", description=__doc__)
    parser.add_argument("--breaking", action="store_true", help="write it even if it breaks clients")
    asked = parser.parse_args()
    try:
        document = create_app(load_settings()).openapi()
    except DynoError as error:
        sys.stderr.write(f"dyno: {error.detail}\n")
        return 2 if isinstance(error, WrongSettings) else 1
    broken = breaks(json.loads(REVIEWED.read_text()), document) if REVIEWED.exists() else []
    sys.stdout.writelines(f"{each}\n" for each in broken)
    if broken and not asked.breaking:
        sys.stderr.write(
            "this breaks clients; if intended, run `make openapi BREAKING=yes` and add a line to CHANGELOG.md\n"
        )
        return 1
    REVIEWED.write_text(text(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
