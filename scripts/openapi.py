"""Behind scripts/openapi: the API's description as a file, for clients that are generated from it."""

import json
import sys
from pathlib import Path

from rackwright.api.app import create_app

FILE = Path(__file__).parent.parent / "openapi.json"


def main(arguments: list[str]) -> int:
    wanted = json.dumps(create_app(None).openapi(), indent=1, ensure_ascii=False) + "\n"
    if arguments == ["--check"]:
        if not FILE.exists() or FILE.read_text() != wanted:
            sys.stderr.write("openapi.json is not what the routes say. Write it anew: scripts/openapi\n")
            return 1
        return 0
    FILE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
