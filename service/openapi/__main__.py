"""`python -m service.openapi [--breaking]`: write the document, as it is served now, over the one that was reviewed.

1 where that would break callers or there is none, and nothing is written then; `--breaking` says that it is meant.
2 a setting is wrong.
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
    """As the file holds it: a line for each value, so that a review sees what has changed."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="service.openapi", description=__doc__)
    parser.add_argument("--breaking", action="store_true", help="write it even if it breaks callers")
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
            "this breaks callers; where it is meant: make openapi BREAKING=yes, and a line in CHANGELOG.md\n"
        )
        return 1
    REVIEWED.write_text(text(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
