"""Gathering what noderoles are handed when they run: their own layers, and what they take from around them."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Row

from rackwright.domain.attributes import Layers, Source, Staged, Surroundings, stage
from rackwright.domain.catalogue import Flag, JsonObject
from rackwright.store.catalogue import StoredCatalogue
from rackwright.store.session import Session

_LAYERS = """
SELECT nr.id, nr.node_id, nr.role_id, nr.deployment_id, nr.cohort, nr.wall, nr.sysdata, nr.user_data,
       coalesce(dr.wall, '{}') AS deployment_wall, coalesce(dr.data, '{}') AS committed
FROM node_roles nr
LEFT JOIN deployment_roles dr ON dr.deployment_id = nr.deployment_id AND dr.role_id = nr.role_id
WHERE nr.id = ANY (:ids)
"""

_SAME_NODE_ANCESTORS = """
WITH RECURSIVE above (taker, node_id, id) AS (
    SELECT nr.id, nr.node_id, e.parent_id
    FROM node_roles nr JOIN node_role_edges e ON e.child_id = nr.id WHERE nr.id = ANY (:ids)
    UNION
    SELECT above.taker, above.node_id, e.parent_id
    FROM above JOIN node_role_edges e ON e.child_id = above.id
)
SELECT above.taker, above.id FROM above JOIN node_roles p ON p.id = above.id AND p.node_id = above.node_id
ORDER BY p.cohort, p.id
"""


async def stage_noderoles(session: Session, ids: Collection[int]) -> dict[int, Staged]:
    """The staged input of each noderole, as of now."""
    stored = await session.catalogue()
    ancestors = await session.rows(_SAME_NODE_ANCESTORS, ids=list(ids))
    links = await session.rows(
        "SELECT l.child_id, a.name AS attrib, l.parent_id FROM node_role_links l JOIN attribs a ON a.id = l.attrib_id"
        " WHERE l.child_id = ANY (:ids) ORDER BY a.id",
        ids=list(ids),
    )
    everyone = {*ids, *(row.id for row in ancestors), *(row.parent_id for row in links)}
    layers = {row.id: row for row in await session.rows(_LAYERS, ids=list(everyone))}
    nodes = {
        row.id: row
        for row in await session.rows(
            "SELECT id, discovery, hint, quirks FROM nodes WHERE id = ANY (:ids)",
            ids=list({layers[id].node_id for id in ids}),
        )
    }
    members = await _members(session, stored, [layers[id] for id in ids])
    sources = {id: Source(stored.role_names[row.role_id], _layers(stored, row).merged()) for id, row in layers.items()}
    staged: dict[int, Staged] = {}
    for id in ids:
        row, node = layers[id], nodes[layers[id].node_id]
        around = Surroundings(
            discovery=node.discovery,
            hint=node.hint,
            quirks=tuple(node.quirks),
            links=tuple((link.attrib, sources[link.parent_id]) for link in links if link.child_id == id),
            ancestors=tuple(sources[one.id] for one in ancestors if one.taker == id),
            members=members.get((row.deployment_id, row.role_id), ()),
        )
        staged[id] = stage(stored.catalogue, stored.role_names[row.role_id], _layers(stored, row), around)
    return staged


def _layers(stored: StoredCatalogue, row: Row[Any]) -> Layers:
    return Layers(
        template=stored.catalogue.role(stored.role_names[row.role_id]).template,
        deployment_wall=row.deployment_wall,
        committed=row.committed,
        wall=row.wall,
        sysdata=row.sysdata,
        user=row.user_data,
    )


async def _members(
    session: Session, stored: StoredCatalogue, rows: Collection[Row[Any]]
) -> dict[tuple[int, int], tuple[JsonObject, ...]]:
    """The members of each cluster among these, as (deployment, role)."""
    clusters = {
        (row.deployment_id, row.role_id)
        for row in rows
        if stored.catalogue.role(stored.role_names[row.role_id]).has(Flag.CLUSTER)
    }
    if not clusters:
        return {}
    found = await session.rows(
        """
        SELECT nr.deployment_id, nr.role_id, n.name, n.discovery -> 'address' AS address
        FROM unnest(CAST(:deployments AS bigint[]), CAST(:roles AS bigint[])) AS c (deployment_id, role_id)
        JOIN node_roles nr ON nr.deployment_id = c.deployment_id AND nr.role_id = c.role_id
        JOIN nodes n ON n.id = nr.node_id
        WHERE nr.state <> 1 AND NOT nr.doomed ORDER BY n.name
        """,
        deployments=[deployment for deployment, _ in clusters],
        roles=[role for _, role in clusters],
    )
    members: dict[tuple[int, int], tuple[JsonObject, ...]] = {}
    for row in found:
        key = (row.deployment_id, row.role_id)
        members[key] = (*members.get(key, ()), {"node": row.name, "address": row.address})
    return members
