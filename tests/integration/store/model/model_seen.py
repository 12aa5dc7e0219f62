"""Everything that the stateful test compares, read from the database with plain queries, keyed by names."""

from dataclasses import dataclass, field
from typing import Any

from tests.integration.store.model.naive_graph import Key

from rackwright.domain.states import NodeRoleState
from rackwright.store.runs.slots import find_wrong_slots
from rackwright.store.store import Store


@dataclass
class SeenNodeRole:
    id: int
    state: str
    shown: tuple[str, str, int, bool]


@dataclass
class SeenSnapshot:
    id: int
    state: str
    roles: dict[str, Any] = field(default_factory=dict)
    bindings: dict[Key, Any] = field(default_factory=dict)


@dataclass
class Seen:
    node_ids: dict[str, int] = field(default_factory=dict)
    homes: dict[str, str] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    noderoles: dict[Key, SeenNodeRole] = field(default_factory=dict)
    edges: set[tuple[Key, Key]] = field(default_factory=set)
    links: set[tuple[Key, str, Key]] = field(default_factory=set)
    snapshots: dict[str, list[SeenSnapshot]] = field(default_factory=dict)
    """The snapshots of each deployment, oldest first."""
    wrong_counters: list[Any] = field(default_factory=list)
    wrong_slots: list[int] = field(default_factory=list)


# One query, because it is sent after every step.
_LOOK = """
SELECT json_build_object(
    'deployments', (SELECT json_agg(json_build_array(name, held)) FROM deployments),
    'nodes', (SELECT json_agg(json_build_array(n.name, n.id, d.name))
              FROM nodes n JOIN deployments d ON d.id = n.deployment_id),
    'noderoles', (SELECT json_agg(json_build_array(nr.id, n.name, r.name, d.name, nr.state, nr.cohort, nr.doomed))
                  FROM node_roles nr JOIN nodes n ON n.id = nr.node_id JOIN roles r ON r.id = nr.role_id
                  JOIN deployments d ON d.id = nr.deployment_id),
    'edges', (SELECT json_agg(json_build_array(parent_id, child_id)) FROM node_role_edges),
    'links', (SELECT json_agg(json_build_array(l.child_id, a.name, l.parent_id))
              FROM node_role_links l JOIN attribs a ON a.id = l.attrib_id),
    'snapshots', (SELECT json_agg(json_build_array(s.id, d.name, s.state) ORDER BY s.id)
                  FROM snapshots s JOIN deployments d ON d.id = s.deployment_id),
    'roles', (SELECT json_agg(json_build_array(snapshot_id, role_name, data)) FROM snapshot_roles),
    'bindings', (SELECT json_agg(json_build_array(snapshot_id, node_name, role_name, data)) FROM snapshot_bindings),
    'wrong_counters', (SELECT json_agg(json_build_array(id, unmet, counted)) FROM (
        SELECT nr.id, nr.unmet, count(p.id) AS counted FROM node_roles nr
        LEFT JOIN node_role_edges e ON e.child_id = nr.id
        LEFT JOIN node_roles p ON p.id = e.parent_id AND p.state <> 0
        GROUP BY nr.id HAVING nr.unmet <> count(p.id)) counters)
)
"""


async def look(store: Store) -> Seen:
    async with store.read() as session:
        rows: dict[str, list[list[Any]] | None] = await session.value(_LOOK)
        _, wrong_slots = await find_wrong_slots(session, -(1 << 62), 1000)
    tables = {name: value or [] for name, value in rows.items()}
    seen = Seen(
        node_ids={node: id for node, id, _ in tables["nodes"]},
        homes={node: home for node, _, home in tables["nodes"]},
        held={name for name, held in tables["deployments"] if held},
        snapshots={name: [] for name, _ in tables["deployments"]},
        wrong_counters=tables["wrong_counters"],
        wrong_slots=wrong_slots,
    )
    keys: dict[int, Key] = {}
    for id, node, role, deployment, number, cohort, doomed in tables["noderoles"]:
        state = NodeRoleState(number).label
        keys[id] = (node, role)
        seen.noderoles[node, role] = SeenNodeRole(id, state, (deployment, state, cohort, doomed))
    seen.edges = {(keys[parent], keys[child]) for parent, child in tables["edges"]}
    seen.links = {(keys[child], attrib, keys[parent]) for child, attrib, parent in tables["links"]}
    snapshots: dict[int, SeenSnapshot] = {}
    for id, deployment, state in tables["snapshots"]:
        snapshots[id] = SeenSnapshot(id, state)
        seen.snapshots[deployment].append(snapshots[id])
    for id, role, data in tables["roles"]:
        snapshots[id].roles[role] = data
    for id, node, role, data in tables["bindings"]:
        snapshots[id].bindings[node, role] = data
    return seen
