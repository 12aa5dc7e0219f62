"""Changes that people make to a node: description, flags and hint, and the MACs and UUID it is found by."""

from collections.abc import Sequence
from dataclasses import dataclass

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import Conflict, NotPermitted, Rule
from rackwright.domain.machines.power import with_matching_password
from rackwright.domain.machines.ssh_login import login_of
from rackwright.store.catalogue.submitted_data import prepare_submitted_data
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.events.outbox import emit
from rackwright.store.hooks.hook_calls import queue_node_updated
from rackwright.store.machines.node_address import approve_address
from rackwright.store.machines.nodes import NodeRecord, confirm_identity, find_node, get_node, update_node

MAX_HINT_BYTES = 64 * 1024
"""The size of a hint in JSON: as much as a machine may report of itself."""


@dataclass(frozen=True)
class NodeChanges:
    """The editable fields of a node as a person wants them."""

    description: str
    alive: bool
    available: bool
    stay_on: bool
    quirks: list[str]
    hint: JsonObject
    macs: list[str]
    uuid: str | None


@dataclass(frozen=True)
class Editor:
    """What the person who edits may set of a node, besides what every operator of the node may."""

    administrator: bool = False
    """The person may set where the machine and its BMC are."""
    may_accept: bool = False
    """The person may set which machine the node is, because the person may let machines in."""


async def edit_node(session: Session, node: NodeRecord, wanted: NodeChanges, editor: Editor) -> NodeRecord:
    """Change the node to what a person wants, and return it.

    The caller has locked the node, and `node` is the node as it is now.
    """
    hint = await _check_hint(session, node, wanted.hint, administrator=editor.administrator)
    if await _set_identity(session, node, wanted.macs, wanted.uuid):
        await confirm_identity(session, node, confirmed=editor.may_accept)
    elif editor.may_accept and wanted.available and not node.available:
        await confirm_identity(session, node, confirmed=True)
    edited_node = await update_node(
        session,
        node.id,
        {
            "description": wanted.description,
            "alive": wanted.alive,
            "available": wanted.available,
            "stay_on": wanted.stay_on,
            "quirks": [*wanted.quirks],
            "hint": hint,
        },
    )
    if editor.administrator and _is_other_address(node.hint, hint):
        await approve_address(session, node.id)
    return edited_node


def _is_other_address(before: JsonObject, after: JsonObject) -> bool:
    """Return whether the hint puts the machine's SSH at another address or port than before."""
    return (before.get("address"), login_of(before).port) != (after.get("address"), login_of(after).port)


async def set_hint(session: Session, node: NodeRecord, hint: JsonObject, *, administrator: bool) -> None:
    """Set the hint that a person gives for a node.

    The caller has locked the node, and `node` is the node as it is now.
    """
    checked = await _check_hint(session, node, hint, administrator=administrator)
    await update_node(session, node.id, {"hint": checked})
    if administrator and _is_other_address(node.hint, checked):
        await approve_address(session, node.id)


async def _check_hint(session: Session, node: NodeRecord, hint: JsonObject, *, administrator: bool) -> JsonObject:
    """Return the hint as it may be stored. Only an administrator may set how a BMC is reached, with its password."""
    catalogue = (await session.catalogue()).catalogue
    node_attribs = [attrib for attrib in catalogue.attribs.values() if attrib.role is None]
    checked = prepare_submitted_data(session.store.vault, node_attribs, node.hint, hint, MAX_HINT_BYTES)
    before, after = node.hint.get("bmc"), checked.get("bmc")
    if before == after:
        return checked
    if not administrator:
        raise NotPermitted(
            f"How the BMC of {node.name} is reached is for administrators to say: rackwright node bmc {node.name}"
        )
    return checked if after is None else {**checked, "bmc": with_matching_password(before, after)}


async def _set_identity(session: Session, node: NodeRecord, macs: Sequence[str], uuid: str | None) -> bool:
    """Set the MACs and UUID that find the machine; return whether they may now find another machine than before.

    A MAC or UUID that another node has already is a conflict.
    """
    macs = sorted(set(macs))
    changed = {name for name, old, new in (("macs", node.macs, macs), ("uuid", node.uuid, uuid)) if old != new}
    if not changed:
        return False
    if node.system:
        raise Conflict(Rule.PHANTOM, f"{node.name} is a phantom node; nothing of it can be changed.")
    other_id = await find_node(session, set(macs) - set(node.macs), uuid if uuid != node.uuid else None)
    if other_id is not None and other_id != node.id:
        other_node = await get_node(session, other_id, EVERYTHING)
        raise Conflict(
            Rule.EXISTS, f"One of these MACs, or the UUID, is of node {other_node.name!r}. Take it away there first."
        )
    await session.run(
        "DELETE FROM node_macs WHERE node_id = :id AND mac <> ALL (CAST(:macs AS macaddr[]))", id=node.id, macs=macs
    )
    await session.run(
        "INSERT INTO node_macs (mac, node_id) SELECT mac, :id FROM unnest(CAST(:macs AS macaddr[])) AS mac"
        " ON CONFLICT DO NOTHING",
        id=node.id,
        macs=macs,
    )
    await session.run("UPDATE nodes SET uuid = CAST(:uuid AS uuid) WHERE id = :id", uuid=uuid, id=node.id)
    await emit(session, "node.updated", node.id, node_id=node.id, data={"changed": [*sorted(changed)]})
    await queue_node_updated(session, {node.id: {name: getattr(node, name) for name in changed}})
    return bool(set(macs) - set(node.macs)) or (uuid is not None and uuid != node.uuid)
