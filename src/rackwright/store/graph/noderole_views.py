"""Noderoles as people see them: with their committed or proposed data, and their parents and children."""

from collections.abc import Collection
from dataclasses import dataclass

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import NotFound
from rackwright.domain.states import NodeRoleState
from rackwright.store.db.listing import Column, Filter, Listing
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import Visibility


@dataclass(frozen=True)
class NodeRoleView:
    id: int
    node_id: int
    node: str
    role_id: int
    role: str
    deployment_id: int
    deployment: str
    state: NodeRoleState
    cohort: int
    run_id: int | None
    doomed: bool
    error: str
    committed_data: JsonObject
    """The data that a person set for the noderole, as committed."""
    proposed_data: JsonObject | None
    """The same in the open proposal; None: there is no open proposal, or the noderole is no longer bound in it."""

    @property
    def user_data(self) -> JsonObject:
        return self.committed_data if self.proposed_data is None else self.proposed_data


_SELECT = """
SELECT nr.id, nr.node_id, n.name AS node, nr.role_id, r.name AS role, nr.deployment_id, d.name AS deployment,
       nr.state, nr.cohort, nr.run_id, nr.doomed, nr.error, nr.user_data AS committed_data,
       (SELECT b.data FROM snapshots s JOIN snapshot_bindings b
          ON b.snapshot_id = s.id AND b.node_id = nr.node_id AND b.role_id = nr.role_id
        WHERE s.deployment_id = nr.deployment_id AND s.state = 'proposed') AS proposed_data
FROM node_roles nr JOIN nodes n ON n.id = nr.node_id JOIN roles r ON r.id = nr.role_id
JOIN deployments d ON d.id = nr.deployment_id
"""

NODE_ROLES = Listing(
    "node_roles",
    {
        "id": Column("nr.id", Filter.NUMBER, sort="bigint"),
        "node": Column("n.name", Filter.REFERENCE, "nr.node_id", sort="text"),
        "role": Column("r.name", Filter.REFERENCE, "nr.role_id", sort="text"),
        "deployment": Column("d.name", Filter.REFERENCE, "nr.deployment_id", sort="text"),
        "state": Column(
            "nr.state",
            Filter.CHOICE,
            choices={state.label: int(state) for state in NodeRoleState},
            sort="smallint",
            key=lambda noderole: int(noderole.state),
        ),
        "cohort": Column("nr.cohort", Filter.NUMBER, sort="bigint", says="How far down the graph it stands"),
        "run_id": Column("nr.run_id", Filter.NUMBER),
    },
    default="id",
    id="nr.id",
    seen="nr.deployment_id = ANY (:sees)",
    listed="nr.id = ANY (ARRAY(SELECT m.id FROM node_roles m WHERE m.deployment_id = ANY (:sees)))",
)


def edge_end_condition(end: str) -> str:
    """Return the SQL condition that the noderole at this end of an edge may be seen, for `Visibility.condition`."""
    return f"EXISTS (SELECT FROM node_roles e WHERE e.id = {end} AND e.deployment_id = ANY (:sees))"


async def select_noderole_views(session: Session, where: str, **values: object) -> list[NodeRoleView]:
    rows = await session.rows(f"{_SELECT} {where}", **values)
    return [NodeRoleView(**{**row._mapping, "state": NodeRoleState(row.state)}) for row in rows]


async def get_noderole_view(session: Session, id: int, visible: Visibility) -> NodeRoleView:
    where = f"WHERE nr.id = :id AND {visible.condition(NODE_ROLES.seen)}"
    views = await select_noderole_views(session, where, id=id, **visible.values)
    if not views:
        raise NotFound("noderole", id)
    return views[0]


async def visible_noderoles(session: Session, ids: Collection[int], visible: Visibility) -> set[int]:
    """Return those of these noderoles that may be seen."""
    rows = await session.rows(
        f"SELECT nr.id FROM node_roles nr WHERE nr.id = ANY (:ids) AND {visible.condition(NODE_ROLES.seen)}",
        ids=list(ids),
        **visible.values,
    )
    return {row.id for row in rows}


@dataclass(frozen=True)
class NodeRoleDetails:
    """The data that a noderole's runs and hooks computed, and its direct neighbours in the graph."""

    wall: JsonObject
    sysdata: JsonObject
    parents: list[int]
    children: list[int]


async def read_noderole_details(session: Session, id: int, visible: Visibility) -> NodeRoleDetails:
    """Return the details of a noderole, with those of its neighbours that may be seen."""
    seen_parent = visible.condition(edge_end_condition("parent_id"))
    seen_child = visible.condition(edge_end_condition("child_id"))
    row = await session.row(
        f"""
        SELECT wall, sysdata,
               ARRAY(SELECT parent_id FROM node_role_edges
                     WHERE child_id = nr.id AND {seen_parent} ORDER BY 1) AS parents,
               ARRAY(SELECT child_id FROM node_role_edges
                     WHERE parent_id = nr.id AND {seen_child} ORDER BY 1) AS children
        FROM node_roles nr WHERE id = :id
        """,
        id=id,
        **visible.values,
    )
    if row is None:
        raise NotFound("noderole", id)
    return NodeRoleDetails(**row._mapping)
