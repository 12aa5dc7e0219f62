"""Everything the stateful test compares, read from the database with plain queries, keyed by names."""

from dataclasses import dataclass, field
from typing import Any

from tests.integration.store.naive_graph import Key

from rackwright.domain.states import NodeRoleState
from rackwright.store.session import Session, Store


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
    """Of each deployment, oldest first."""
    wrong_counters: list[Any] = field(default_factory=list)


_WRONG_COUNTERS = """
SELECT nr.id, nr.unmet, count(p.id) AS counted FROM node_roles nr
LEFT JOIN node_role_edges e ON e.child_id = nr.id LEFT JOIN node_roles p ON p.id = e.parent_id AND p.state <> 0
GROUP BY nr.id HAVING nr.unmet <> count(p.id)
"""


async def look(store: Store) -> Seen:
    async with store.read() as session:
        return await _look(session)


async def _look(session: Session) -> Seen:
    seen = Seen()
    for row in await session.rows("SELECT id, name, held FROM deployments"):
        seen.snapshots[row.name] = []
        if row.held:
            seen.held.add(row.name)
    deployments = "JOIN deployments d ON d.id = "
    for row in await session.rows(f"SELECT n.id, n.name, d.name AS home FROM nodes n {deployments} n.deployment_id"):
        seen.node_ids[row.name] = row.id
        seen.homes[row.name] = row.home
    keys: dict[int, Key] = {}
    for row in await session.rows(
        "SELECT nr.id, n.name AS node, r.name AS role, d.name AS deployment, nr.state, nr.cohort, nr.doomed"
        f" FROM node_roles nr JOIN nodes n ON n.id = nr.node_id JOIN roles r ON r.id = nr.role_id {deployments}"
        " nr.deployment_id"
    ):
        state = NodeRoleState(row.state).label
        keys[row.id] = (row.node, row.role)
        seen.noderoles[row.node, row.role] = SeenNodeRole(
            row.id, state, (row.deployment, state, row.cohort, row.doomed)
        )
    for row in await session.rows("SELECT parent_id, child_id FROM node_role_edges"):
        seen.edges.add((keys[row.parent_id], keys[row.child_id]))
    for row in await session.rows(
        "SELECT l.child_id, a.name, l.parent_id FROM node_role_links l JOIN attribs a ON a.id = l.attrib_id"
    ):
        seen.links.add((keys[row.child_id], row.name, keys[row.parent_id]))
    await _look_at_snapshots(session, seen)
    seen.wrong_counters = [tuple(row) for row in await session.rows(_WRONG_COUNTERS)]
    return seen


async def _look_at_snapshots(session: Session, seen: Seen) -> None:
    found: dict[int, SeenSnapshot] = {}
    for row in await session.rows(
        "SELECT s.id, d.name, s.state FROM snapshots s JOIN deployments d ON d.id = s.deployment_id ORDER BY s.id"
    ):
        found[row.id] = SeenSnapshot(row.id, row.state)
        seen.snapshots[row.name].append(found[row.id])
    for row in await session.rows("SELECT snapshot_id, role_name, data FROM snapshot_roles"):
        found[row.snapshot_id].roles[row.role_name] = row.data
    for row in await session.rows("SELECT snapshot_id, node_name, role_name, data FROM snapshot_bindings"):
        found[row.snapshot_id].bindings[row.node_name, row.role_name] = row.data
