"""What a run finds out about its node: node attribs among what it returned are written to the node.

A run's output comes from a machine that may be an enemy's, so it cannot say how machines are reached, nor a secret.
"""

import json
from collections.abc import Mapping

from psycopg.types.json import Jsonb

from rackwright.domain.attributes import MISSING, check_value, merge, nest_at_path, read_at_path
from rackwright.domain.catalogue import Attrib, Catalogue, Json, JsonObject
from rackwright.domain.errors import Invalid
from rackwright.domain.machines.mesh_members import MARK
from rackwright.domain.machines.ssh_login import SSH
from rackwright.domain.states import PROPOSED
from rackwright.store.db.session import Session
from rackwright.store.events.outbox import emit
from rackwright.store.graph.transitions import dirty_because_of
from rackwright.store.hooks.hook_calls import queue_node_updated

KEPT_FROM_RUNS = frozenset({"address", "bmc", MARK, SSH})
"""Where and how machines and their controllers are reached: people, registrations and the mesh say it."""
LARGEST_DISCOVERY = 128 * 1024
"""Bytes of JSON that are kept of what was found out about a node."""

_WANT_BESIDE_AND_BELOW = """
WITH RECURSIVE above (id) AS (
    SELECT parent_id FROM node_role_edges WHERE child_id = :writer
    UNION SELECT e.parent_id FROM above JOIN node_role_edges e ON e.child_id = above.id
)
SELECT nr.id FROM node_roles nr JOIN roles r ON r.id = nr.role_id AND r.wants && CAST(:changed AS text[])
WHERE nr.node_id = :node AND nr.id <> :writer AND nr.state <> :proposed AND nr.id NOT IN (SELECT id FROM above)
"""


def writable(catalogue: Catalogue) -> list[Attrib]:
    """The attribs of nodes that a run may write."""
    return [
        attrib
        for attrib in catalogue.attribs.values()
        if attrib.role is None and not attrib.secret and attrib.map[0] not in KEPT_FROM_RUNS
    ]


async def write_findings(session: Session, walls: Mapping[int, JsonObject]) -> None:
    """Write node attribs to the nodes of runs that succeeded, by what these returned.

    What a run found whose noderole is gone by now counts no more.
    """
    catalogue = (await session.catalogue()).catalogue
    attribs = writable(catalogue)
    telling = {
        id: wall for id, wall in walls.items() if any(read_at_path(wall, one.map) is not MISSING for one in attribs)
    }
    if not telling:
        return
    rows = await session.rows(
        "SELECT r.id, r.node_role_id, n.id AS node_id FROM runs r JOIN node_roles nr ON nr.id = r.node_role_id"
        " JOIN nodes n ON n.id = r.node_id AND NOT n.system"
        " WHERE r.id = ANY (:ids) ORDER BY n.id FOR NO KEY UPDATE OF n",
        ids=list(telling),
    )
    for row in rows:
        await _write(session, row.node_id, row.node_role_id, catalogue, telling[row.id])


async def _write(session: Session, node_id: int, writer: int, catalogue: Catalogue, wall: JsonObject) -> None:
    before: JsonObject = await session.value("SELECT discovery FROM nodes WHERE id = :id", id=node_id)
    said = [(one, value) for one in writable(catalogue) if (value := read_at_path(wall, one.map)) is not MISSING]
    fitting = [(one, value) for one, value in said if _fits(one, value)]
    after = merge(before, *(nest_at_path(one.map, value) for one, value in fitting))
    if len(json.dumps(after)) > LARGEST_DISCOVERY:
        after, fitting = before, []
    refused = sorted({one.name for one, _ in said} - {one.name for one, _ in fitting})
    if refused:
        await emit(session, "node.finding_refused", node_id, node_id=node_id, data={"attribs": [*refused]})
    if after == before:
        return
    await session.run("UPDATE nodes SET discovery = :it WHERE id = :id", it=Jsonb(after), id=node_id)
    await emit(session, "node.updated", node_id, node_id=node_id, data={"changed": ["discovery"]})
    await queue_node_updated(session, {node_id: {"discovery": before}})
    of_nodes = [one for one in catalogue.attribs.values() if one.role is None]
    changed = [one.name for one in of_nodes if read_at_path(before, one.map) != read_at_path(after, one.map)]
    # Neither the writer nor what it stands on: else a run that finds something new each time would run for ever.
    # And two beside each other that find different things are stopped as any two are that chase each other.
    rows = await session.rows(
        _WANT_BESIDE_AND_BELOW, node=node_id, writer=writer, changed=changed, proposed=int(PROPOSED)
    )
    await dirty_because_of(session, writer, [row.id for row in rows])


def _fits(attrib: Attrib, value: Json) -> bool:
    if attrib.schema is None:
        return True
    try:
        check_value(attrib, value)
    except Invalid:
        return False
    return True
