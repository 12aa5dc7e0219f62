"""All tables, with the constraints that make wrong states impossible. Queries live beside their aggregate.

There is one module an aggregate. Importing this package registers all of them in `metadata`, which is what the
migrations and the tests use. Tables refer to each other by name, so no module needs another but `base.py`.
Tables are named like the collections of the API. Hot tables leave room in their pages (fillfactor) because each of
their rows is updated several times.
"""

from rackwright.store.db.tables import (
    catalogue,
    deployments,
    events,
    graph,
    hooks,
    machines,
    networks,
    people,
    runs,
    settings,
)
from rackwright.store.db.tables.base import XID8, metadata

__all__ = [
    "XID8",
    "catalogue",
    "deployments",
    "events",
    "graph",
    "hooks",
    "machines",
    "metadata",
    "networks",
    "people",
    "runs",
    "settings",
]
