"""Writes what a run found out about its node: node attribs among the values that a run returned go to the node.

A run's output comes from a machine that an enemy may control, so it cannot set how machines are reached, nor a secret.
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
from rackwright.store.graph.transitions import mark_dirty_by_run
from rackwright.store.hooks.hook_calls import queue_node_updated

PROTECTED_KEYS = frozenset({"address", "bmc", MARK, SSH})
"""Where and how machines and their controllers are reached: only people, registrations and the mesh set these."""
MAX_DISCOVERY_BYTES = 128 * 1024
"""The size in JSON up to which findings about a node are stored."""

_SELECT_TAKERS = """
WITH RECURSIVE above (id) AS (
    SELECT parent_id FROM node_role_edges WHERE child_id = :writer
    UNION SELECT e.parent_id FROM above JOIN node_role_edges e ON e.child_id = above.id
)
SELECT nr.id FROM node_roles nr JOIN roles r ON r.id = nr.role_id AND r.wants && CAST(:changed AS text[])
WHERE nr.node_id = :node AND nr.id <> :writer AND nr.state <> :proposed AND nr.id NOT IN (SELECT id FROM above)
"""


def writable_attribs(catalogue: Catalogue) -> list[Attrib]:
    """Return the attribs of nodes that a run may write."""
    return [
        attrib
        for attrib in catalogue.attribs.values()
        if attrib.role is None and not attrib.secret and attrib.map[0] not in PROTECTED_KEYS
    ]


async def write_findings(session: Session, walls: Mapping[int, JsonObject]) -> None:
    """Write node attribs to the nodes of runs that succeeded, from the walls that these returned, by run.

    The findings of a run whose noderole is gone by now are dropped.
    """
    catalogue = (await session.catalogue()).catalogue
    attribs = writable_attribs(catalogue)
    walls_with_findings = {
        id: wall
        for id, wall in walls.items()
        if any(read_at_path(wall, attrib.map) is not MISSING for attrib in attribs)
    }
    if not walls_with_findings:
        return
    rows = await session.rows(
        "SELECT r.id, r.node_role_id, n.id AS node_id FROM runs r JOIN node_roles nr ON nr.id = r.node_role_id"
        " JOIN nodes n ON n.id = r.node_id AND NOT n.system"
        " WHERE r.id = ANY (:ids) ORDER BY n.id FOR NO KEY UPDATE OF n",
        ids=list(walls_with_findings),
    )
    for row in rows:
        await _write_to_node(session, row.node_id, row.node_role_id, catalogue, walls_with_findings[row.id])


async def _write_to_node(session: Session, node_id: int, writer: int, catalogue: Catalogue, wall: JsonObject) -> None:
    before: JsonObject = await session.value("SELECT discovery FROM nodes WHERE id = :id", id=node_id)
    returned = [
        (attrib, value)
        for attrib in writable_attribs(catalogue)
        if (value := read_at_path(wall, attrib.map)) is not MISSING
    ]
    valid = [(attrib, value) for attrib, value in returned if _is_valid(attrib, value)]
    after = merge(before, *(nest_at_path(attrib.map, value) for attrib, value in valid))
    if len(json.dumps(after)) > MAX_DISCOVERY_BYTES:
        after, valid = before, []
    refused = sorted({attrib.name for attrib, _ in returned} - {attrib.name for attrib, _ in valid})
    if refused:
        await emit(session, "node.finding_refused", node_id, node_id=node_id, data={"attribs": [*refused]})
    if after == before:
        return
    await session.run("UPDATE nodes SET discovery = :it WHERE id = :id", it=Jsonb(after), id=node_id)
    await emit(session, "node.updated", node_id, node_id=node_id, data={"changed": ["discovery"]})
    await queue_node_updated(session, {node_id: {"discovery": before}})
    node_attribs = [attrib for attrib in catalogue.attribs.values() if attrib.role is None]
    changed = [
        attrib.name for attrib in node_attribs if read_at_path(before, attrib.map) != read_at_path(after, attrib.map)
    ]
    # Neither the writer nor what it stands on runs again: else a run that finds something new each time would run for
    # ever. Two beside each other that find different things are stopped, as any two are that make each other run.
    rows = await session.rows(_SELECT_TAKERS, node=node_id, writer=writer, changed=changed, proposed=int(PROPOSED))
    await mark_dirty_by_run(session, writer, [row.id for row in rows])


def _is_valid(attrib: Attrib, value: Json) -> bool:
    if attrib.schema is None:
        return True
    try:
        check_value(attrib, value)
    except Invalid:
        return False
    return True
