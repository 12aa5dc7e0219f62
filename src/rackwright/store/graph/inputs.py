"""The inputs of a noderole: each attrib that its role wants, the parent or node that supplies it, and the value."""

from dataclasses import dataclass

from rackwright.domain.attributes import read_at_path
from rackwright.domain.catalogue import JsonObject
from rackwright.domain.states import PROPOSED
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import Visibility
from rackwright.store.graph.attrib_values import AttribValue, read_node_attribs, read_noderole_attribs, resolve_value
from rackwright.store.graph.noderole_views import NODE_ROLES, NodeRoleView, select_noderole_views
from rackwright.store.graph.run_attribs import stage_noderoles
from rackwright.store.machines.nodes import get_node


@dataclass(frozen=True)
class Input:
    value: AttribValue
    """The value as its supplier has it."""
    node: str | None
    """The node that the supplier is on; None: there is no supplier."""
    noderole: NodeRoleView | None
    """The noderole that supplies the value; None: the node itself supplies it, or there is no supplier."""
    overridden: bool
    """The noderole is handed another value, because what its own node sets in that place counts more."""


async def read_inputs(session: Session, noderole: NodeRoleView, visible: Visibility) -> list[Input]:
    """Return the inputs of a noderole in the order in which its role wants them.

    For a committed noderole all values are those in force, for one that is only proposed those that would be.
    """
    catalogue = (await session.catalogue()).catalogue
    wanted = [catalogue.attribs[name] for name in catalogue.role(noderole.role).wants if name in catalogue.attribs]
    committed = noderole.state is not PROPOSED
    staged_input = (await stage_noderoles(session, [noderole.id]))[noderole.id].staged.input if committed else None
    suppliers = await _select_suppliers(session, noderole.id, visible)
    values_by_supplier: dict[int | None, dict[str, AttribValue]] = {}
    own_node = await get_node(session, noderole.node_id, visible)
    values_by_supplier[None] = {value.attrib.name: value for value in await read_node_attribs(session, own_node)}
    for parent in suppliers.values():
        if parent.id not in values_by_supplier:
            values = await read_noderole_attribs(session, parent, committed=committed)
            values_by_supplier[parent.id] = {value.attrib.name: value for value in values}
    inputs = []
    for attrib in wanted:
        supplier = suppliers.get(attrib.name)
        supplied = values_by_supplier[None if supplier is None else supplier.id].get(attrib.name)
        if supplied is None:  # the attrib's owner is bound nowhere that this noderole could see
            inputs.append(Input(resolve_value(attrib, attrib.role, ()), None, None, overridden=False))
            continue
        node_name = noderole.node if supplier is None else supplier.node
        inputs.append(Input(supplied, node_name, supplier, overridden=_is_overridden(supplied, staged_input)))
    return inputs


async def _select_suppliers(session: Session, id: int, visible: Visibility) -> dict[str, NodeRoleView]:
    """Return the parent that each attrib is taken from; a parent that may not be seen is left out."""
    links = await session.rows(
        "SELECT a.name, l.parent_id FROM node_role_links l JOIN attribs a ON a.id = l.attrib_id WHERE l.child_id = :id",
        id=id,
    )
    where = f"WHERE nr.id = ANY (:ids) AND {visible.condition(NODE_ROLES.seen)}"
    views = await select_noderole_views(session, where, ids=[row.parent_id for row in links], **visible.values)
    parents = {view.id: view for view in views}
    return {row.name: parents[row.parent_id] for row in links if row.parent_id in parents}


def _is_overridden(value: AttribValue, staged_input: JsonObject | None) -> bool:
    return staged_input is not None and value.has_value and read_at_path(staged_input, value.attrib.map) != value.value
