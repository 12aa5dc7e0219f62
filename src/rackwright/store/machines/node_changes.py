"""What people change of a node: its words, flags and wishes, and by which MACs and UUID it is found."""

from collections.abc import Sequence
from dataclasses import dataclass

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import Conflict, NotFound, NotPermitted, Rule
from rackwright.domain.machines.power import with_matching_password
from rackwright.domain.machines.ssh_login import login_of
from rackwright.domain.states import Trigger
from rackwright.store.catalogue.submitted_data import prepare_submitted_data
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.events.outbox import emit
from rackwright.store.graph.noderoles import retry
from rackwright.store.hooks.hook_calls import queue_node_updated
from rackwright.store.machines.node_address import approve_address
from rackwright.store.machines.nodes import NodeRecord, confirm_identity, find_node, get_node, update_node

LARGEST_HINT = 64 * 1024
"""Bytes of JSON: as much as a machine may say of itself."""


@dataclass(frozen=True)
class NodeChanges:
    """A node as a person wants it."""

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
    """What the person who edits may say of a node, besides what every operator of it may."""

    administrator: bool = False
    """Where its machine and its BMC are."""
    may_accept: bool = False
    """Which machine it is: the person may let machines in."""


async def edit_node(session: Session, node: NodeRecord, wanted: NodeChanges, editor: Editor) -> NodeRecord:
    """Make the node what a person wants. It is locked, and `node` is what it is."""
    hint = await _checked_hint(session, node, wanted.hint, administrator=editor.administrator)
    if await _set_identity(session, node, wanted.macs, wanted.uuid):
        await confirm_identity(session, node, confirmed=editor.may_accept)
    elif editor.may_accept and wanted.available and not node.available:
        await confirm_identity(session, node, confirmed=True)
    edited = await update_node(
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
    if editor.administrator and _is_elsewhere(node.hint, hint):
        await approve_address(session, node.id)
    return edited


def _is_elsewhere(before: JsonObject, after: JsonObject) -> bool:
    """Whether a hint says that the machine's SSH is somewhere else."""
    return (before.get("address"), login_of(before).port) != (after.get("address"), login_of(after).port)


async def set_hint(session: Session, node: NodeRecord, hint: JsonObject, *, administrator: bool) -> None:
    """Set what a person wishes of a node. It is locked, and `node` is what it is."""
    checked = await _checked_hint(session, node, hint, administrator=administrator)
    await update_node(session, node.id, {"hint": checked})
    if administrator and _is_elsewhere(node.hint, checked):
        await approve_address(session, node.id)


async def _checked_hint(session: Session, node: NodeRecord, hint: JsonObject, *, administrator: bool) -> JsonObject:
    """The hint as it may be stored. How a BMC is reached is the administrator's to say, with its password."""
    catalogue = (await session.catalogue()).catalogue
    own = [attrib for attrib in catalogue.attribs.values() if attrib.role is None]
    checked = prepare_submitted_data(session.store.vault, own, node.hint, hint, LARGEST_HINT)
    before, after = node.hint.get("bmc"), checked.get("bmc")
    if before == after:
        return checked
    if not administrator:
        raise NotPermitted(
            f"How the BMC of {node.name} is reached is for administrators to say: rackwright node bmc {node.name}"
        )
    return checked if after is None else {**checked, "bmc": with_matching_password(before, after)}


async def _set_identity(session: Session, node: NodeRecord, macs: Sequence[str], uuid: str | None) -> bool:
    """Set by what the machine is found again; whether that may now find another machine than before.

    What is another node's already is a conflict.
    """
    macs = sorted(set(macs))
    changed = {name for name, old, new in (("macs", node.macs, macs), ("uuid", node.uuid, uuid)) if old != new}
    if not changed:
        return False
    if node.system:
        raise Conflict(Rule.PHANTOM, f"{node.name} is a phantom node; nothing of it can be changed.")
    other = await find_node(session, set(macs) - set(node.macs), uuid if uuid != node.uuid else None)
    if other is not None and other != node.id:
        known = await get_node(session, other, EVERYTHING)
        raise Conflict(
            Rule.EXISTS, f"One of these MACs, or the UUID, is of node {known.name!r}. Take it away there first."
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


async def reinstall(session: Session, node: NodeRecord) -> int:
    """Start a new attempt of what wiped the node the last time. The one way a destructive noderole runs again."""
    found = await session.rows(
        "SELECT nr.id FROM node_roles nr JOIN roles r ON r.id = nr.role_id AND r.destructive"
        " WHERE nr.node_id = :id AND NOT nr.doomed ORDER BY nr.cohort, nr.id",
        id=node.id,
    )
    if not found:
        raise NotFound("install role bound to", node.name)
    await retry(session, found[0].id, Trigger.REINSTALL)
    await emit(session, "node.reinstall", node.id, node_id=node.id, data={"node_role_id": found[0].id})
    return int(found[0].id)
