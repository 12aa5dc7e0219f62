"""What a noderole takes from around it: each attrib it wants, who answers for that, and what he says."""

from dataclasses import dataclass

from rackwright.domain.attributes import read_at_path
from rackwright.domain.catalogue import JsonObject
from rackwright.domain.states import PROPOSED
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import Visibility
from rackwright.store.graph.attrib_values import AttribValue, node_attribs, noderole_attribs, value_of
from rackwright.store.graph.noderole_views import NODE_ROLES, NodeRoleView, select_views
from rackwright.store.graph.run_attribs import stage_noderoles
from rackwright.store.machines.nodes import get_node


@dataclass(frozen=True)
class Input:
    value: AttribValue
    """As the one who answers for it has it."""
    node: str | None
    """Where that is; None: nobody answers for it."""
    noderole: NodeRoleView | None
    """Who answers for it; None: the node itself, or nobody."""
    overridden: bool
    """The noderole is handed something else: what its own node says at that place counts more."""


async def inputs_of(session: Session, noderole: NodeRoleView, visible: Visibility) -> list[Input]:
    """In the order in which its role wants them. Of what is committed all is as in force, of what is only proposed as
    it would be."""
    catalogue = (await session.catalogue()).catalogue
    wanted = [catalogue.attribs[name] for name in catalogue.role(noderole.role).wants if name in catalogue.attribs]
    committed = noderole.state is not PROPOSED
    handed = (await stage_noderoles(session, [noderole.id]))[noderole.id].staged.input if committed else None
    suppliers = await _suppliers(session, noderole.id, visible)
    answers: dict[int | None, dict[str, AttribValue]] = {}
    node = await get_node(session, noderole.node_id, visible)
    answers[None] = {one.attrib.name: one for one in await node_attribs(session, node)}
    for one in suppliers.values():
        if one.id not in answers:
            said = await noderole_attribs(session, one, committed=committed)
            answers[one.id] = {value.attrib.name: value for value in said}
    found = []
    for attrib in wanted:
        supplier = suppliers.get(attrib.name)
        value = answers[None if supplier is None else supplier.id].get(attrib.name)
        if value is None:  # its owner is bound nowhere that this noderole could see
            found.append(Input(value_of(attrib, attrib.role, ()), None, None, overridden=False))
            continue
        place = noderole.node if supplier is None else supplier.node
        found.append(Input(value, place, supplier, overridden=_overridden(value, handed)))
    return found


async def _suppliers(session: Session, id: int, visible: Visibility) -> dict[str, NodeRoleView]:
    """By the attrib, the parent that it is taken from; one that may not be seen is nobody."""
    links = await session.rows(
        "SELECT a.name, l.parent_id FROM node_role_links l JOIN attribs a ON a.id = l.attrib_id WHERE l.child_id = :id",
        id=id,
    )
    where = f"WHERE nr.id = ANY (:ids) AND {visible.condition(NODE_ROLES.seen)}"
    views = await select_views(session, where, ids=[row.parent_id for row in links], **visible.values)
    parents = {view.id: view for view in views}
    return {row.name: parents[row.parent_id] for row in links if row.parent_id in parents}


def _overridden(value: AttribValue, handed: JsonObject | None) -> bool:
    return handed is not None and value.found and read_at_path(handed, value.attrib.map) != value.value
