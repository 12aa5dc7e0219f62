"""`python -m rackwright.store.embedded COMMAND ...` runs a program (psql, pg_dump) beside the server of the home."""

import sys

from rackwright.store.embedded.server import main

sys.exit(main(sys.argv[1:] or ["psql"]))
