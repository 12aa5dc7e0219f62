"""The numbers of all advisory locks, in one place so that no two are the same.

A transaction that needs more than one takes them in this order.
"""

from typing import Final

MIGRATION_LOCK: Final = 0x5241434B01
"""Held while the schema is brought up to date."""
GRAPH_LOCK: Final = 0x5241434B02
"""Held by whatever adds or removes noderoles, edges, nodes, deployments or roles: a `GraphSession` has it."""
CAP_LOCK: Final = 0x5241434B03
"""Held by a pass of the annealer, so that the number of running runs it counted stays true."""
INSTALL_LOCK: Final = 0x5241434B04
"""Held by a pass over all install attempts, so that the number under way it counted stays true."""
MESH_LOCK: Final = 0x5241434B05
"""Held, on a connection of its own, by the one server that follows the mesh."""
PEOPLE_LOCK: Final = 0x5241434B10
"""Held by whatever could leave the system without an admin."""
