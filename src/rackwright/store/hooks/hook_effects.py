"""Apply the effects that hooks returned: one function an effect, all effects of one call in the caller's transaction.

Each is idempotent, because a call may be made twice; and its subject may be gone, which is no mistake of the hook.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from psycopg.types.json import Jsonb

from rackwright.domain.attributes import merge, nest_at_path
from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.effects import MAX_MESSAGE
from rackwright.domain.errors import Conflict, Invalid, NotFound, Rule
from rackwright.domain.hooks import (
    Effect,
    Enqueue,
    Log,
    Refuse,
    SetDeploymentRoleData,
    SetNode,
    SetNodeAttribute,
    SetSysdata,
)
from rackwright.domain.states import ACTIVE, PROPOSED
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.events.outbox import emit
from rackwright.store.graph.transitions import mark_dirty, mark_takers_dirty
from rackwright.store.machines.nodes import confirm_identity, get_node, update_node
from rackwright.store.runs.run_lifecycle import enqueue_refresh


@dataclass(frozen=True)
class Origin:
    """The hook that returned the effects, and the subject of its call: the target of effects that name none."""

    role: str
    hook: str
    node_id: int | None = None
    node_role_id: int | None = None
    deployment_id: int | None = None


async def apply_effects(session: Session, origin: Origin, effects: Sequence[Effect]) -> None:
    """Apply all effects of one call of a hook."""
    changed: set[int] = set()
    for effect in effects:
        match effect:
            case SetNode():
                await _set_node(session, origin, effect)
            case SetNodeAttribute():
                await _set_node_attribute(session, origin, effect)
            case SetSysdata():
                changed |= await _set_sysdata(session, origin, effect)
            case SetDeploymentRoleData():
                changed |= await _set_deployment_role_data(session, origin, effect)
            case Refuse():
                raise Conflict(Rule.REFUSED, refusal_text(origin.role, origin.hook, effect))
            case Log():
                await _log(session, origin, effect)
            case Enqueue():
                pass  # enqueued after the other effects, so that it runs with what they changed
    enqueued: set[int] = set()
    for effect in effects:
        if isinstance(effect, Enqueue):
            enqueued |= await _noderoles_to_enqueue(session, origin, effect)
    await _rerun_changed(session, changed, enqueued)
    for id in sorted(enqueued):
        await enqueue_refresh(session, id)


def refusal_text(role: str, hook: str, effect: Refuse) -> str:
    return f"Role {role!r} refuses ({hook}): {effect.message[:MAX_MESSAGE]}"


async def _lock_node(session: Session, id: int | None, effect: Effect) -> int | None:
    """Lock the node that an effect is about, and return its id; None if it is gone."""
    if id is None:
        raise Invalid(f"{type(effect).__name__} must say which node it is about.")
    locked_id: int | None = await session.value("SELECT id FROM nodes WHERE id = :id FOR UPDATE", id=id)
    return locked_id


async def _set_node(session: Session, origin: Origin, effect: SetNode) -> None:
    id = await _lock_node(session, origin.node_id if effect.node is None else effect.node, effect)
    if id is None:
        return
    new_values: dict[str, Json] = {
        "bootenv": effect.bootenv,
        "alive": effect.alive,
        "available": effect.available,
        "stay_on": effect.stay_on,
    }
    node = await get_node(session, id, EVERYTHING)
    if effect.available and node.waiting:
        await confirm_identity(session, node, confirmed=True)
    await update_node(session, id, {name: value for name, value in new_values.items() if value is not None})


async def _set_node_attribute(session: Session, origin: Origin, effect: SetNodeAttribute) -> None:
    id = await _lock_node(session, origin.node_id if effect.node is None else effect.node, effect)
    if id is None:
        return
    attrib = (await session.catalogue()).catalogue.attribs.get(effect.attrib)
    if attrib is None:
        raise NotFound("attrib", effect.attrib)
    if attrib.role is not None:
        raise Invalid(f"Attrib {attrib.name!r} is one of role {attrib.role!r} and not of the node. Use SetSysdata.")
    node = await get_node(session, id, EVERYTHING)
    await update_node(session, id, {"discovery": merge(node.discovery, nest_at_path(attrib.map, effect.value))})


async def _set_sysdata(session: Session, origin: Origin, effect: SetSysdata) -> set[int]:
    """Merge data into sysdata, and return the ids of the noderoles whose data changed."""
    noderole_id = origin.node_role_id if effect.noderole is None else effect.noderole
    rows = await session.rows(
        "SELECT nr.id, nr.sysdata FROM node_roles nr JOIN roles r ON r.id = nr.role_id AND r.name = :role"
        " WHERE CAST(:noderole_id AS bigint) IS NULL OR nr.id = :noderole_id ORDER BY nr.id FOR UPDATE OF nr",
        role=origin.role,
        noderole_id=noderole_id,
    )
    if effect.noderole is not None and not rows:
        await _check_own_noderole(session, origin, effect.noderole)
    changed: set[int] = set()
    for row in rows:
        patched = merge_patch(row.sysdata, effect.data)
        if patched != row.sysdata:
            await session.run("UPDATE node_roles SET sysdata = :data WHERE id = :id", data=Jsonb(patched), id=row.id)
            changed.add(row.id)
    return changed


async def _check_own_noderole(session: Session, origin: Origin, id: int) -> None:
    other = await session.value(
        "SELECT r.name FROM node_roles nr JOIN roles r ON r.id = nr.role_id WHERE nr.id = :id", id=id
    )
    if other is not None:
        raise Invalid(f"Noderole {id} is of role {other!r}; {origin.hook} of {origin.role!r} sets only its own role's.")


async def _set_deployment_role_data(session: Session, origin: Origin, effect: SetDeploymentRoleData) -> set[int]:
    """Merge data into the deployment-role's wall, and return the ids of the noderoles whose data changed."""
    id = origin.deployment_id if effect.deployment is None else effect.deployment
    if id is None:
        raise Invalid("SetDeploymentRoleData must say which deployment it is about.")
    row = await session.row(
        "SELECT dr.id, dr.wall, dr.role_id FROM deployment_roles dr JOIN roles r ON r.id = dr.role_id"
        " WHERE dr.deployment_id = :id AND r.name = :role FOR UPDATE OF dr",
        id=id,
        role=origin.role,
    )
    if row is None:
        return set()
    patched = merge_patch(row.wall, effect.data)
    if patched == row.wall:
        return set()
    await session.run("UPDATE deployment_roles SET wall = :wall WHERE id = :id", wall=Jsonb(patched), id=row.id)
    rows = await session.rows(
        "SELECT id FROM node_roles WHERE deployment_id = :id AND role_id = :role AND state <> :proposed",
        id=id,
        role=row.role_id,
        proposed=int(PROPOSED),
    )
    return {noderole.id for noderole in rows}


async def _log(session: Session, origin: Origin, effect: Log) -> None:
    await emit(
        session,
        "hook.log",
        origin.node_role_id,
        node_id=origin.node_id,
        deployment_id=origin.deployment_id,
        data={"role": origin.role, "hook": origin.hook, "message": effect.message[:MAX_MESSAGE]},
    )


async def _noderoles_to_enqueue(session: Session, origin: Origin, effect: Enqueue) -> set[int]:
    rows = await session.rows(
        "SELECT nr.id FROM node_roles nr JOIN roles r ON r.id = nr.role_id"
        " WHERE (nr.id = :noderole_id OR CAST(:noderole_id AS bigint) IS NULL AND r.name = :role)"
        " AND nr.state <> :proposed AND NOT nr.doomed",
        noderole_id=effect.noderole,
        role=effect.role or origin.role,
        proposed=int(PROPOSED),
    )
    return {row.id for row in rows}


async def _rerun_changed(session: Session, changed: Collection[int], enqueued: Collection[int]) -> None:
    """Run noderoles again whose inputs changed; those that are enqueued stay ACTIVE for their children meanwhile."""
    if not changed:
        return
    still_active = await session.rows(
        "UPDATE node_roles SET inputs_rev = inputs_rev + 1 WHERE id = ANY (:ids) AND state = :active RETURNING id",
        ids=sorted(set(changed) & set(enqueued)),
        active=int(ACTIVE),
    )
    await mark_dirty(session, set(changed) - {row.id for row in still_active})
    await mark_takers_dirty(session, set(changed))


def merge_patch(values: JsonObject, changes: JsonObject) -> JsonObject:
    """Return the values with changes as by RFC 7396: maps merge, null removes, anything else replaces."""
    patched = dict(values)
    for key, value in changes.items():
        before = patched.get(key)
        if value is None:
            patched.pop(key, None)
        elif isinstance(value, dict):
            patched[key] = merge_patch(before if isinstance(before, dict) else {}, value)
        else:
            patched[key] = value
    return patched
