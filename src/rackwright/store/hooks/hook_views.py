"""The views of nodes, noderoles and deployments that hooks are shown, read when a call is made, by the stored ids.

A stored call is small, however large its subject is: what a machine found out about itself is up to 256 KiB, and a
change of it is told to every role and jig that has the hook. Only the last state of a node that is gone when the call
is made is stored, once for all calls.
"""

import json
from collections.abc import Mapping

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.store.db.session import Session

NODE_VIEW = """
    jsonb_build_object(
        'id', n.id, 'name', n.name, 'description', n.description, 'admin', n.admin, 'system', n.system,
        'alive', n.alive, 'available', n.available, 'bootenv', n.bootenv, 'observed_bootenv', n.observed_bootenv,
        'boot_id', n.boot_id, 'uuid', n.uuid, 'discovery', n.discovery, 'hint', n.hint, 'quirks', n.quirks,
        'stay_on', n.stay_on, 'deployment', (SELECT home.name FROM deployments home WHERE home.id = n.deployment_id),
        'macs', (SELECT coalesce(jsonb_agg(m.mac::text ORDER BY m.mac), '[]') FROM node_macs m WHERE m.node_id = n.id),
        'roles', (SELECT coalesce(jsonb_agg(bound.name ORDER BY bound.name), '[]') FROM node_roles other
                  JOIN roles bound ON bound.id = other.role_id WHERE other.node_id = n.id))
"""

DEPLOYMENT_VIEW = """
    jsonb_build_object(
        'id', d.id, 'name', d.name, 'description', d.description,
        'parent', (SELECT above.name FROM deployments above WHERE above.id = d.parent_id),
        'template', r.template, 'wall', coalesce(dr.wall, '{}'), 'committed', coalesce(dr.data, '{}'))
"""

NODEROLE_VIEW = f"""
    jsonb_build_object(
        'id', nr.id, 'role', r.name, 'state', nr.state, 'cohort', nr.cohort, 'error', nr.error, 'run_id', nr.run_id,
        'wall', nr.wall, 'sysdata', nr.sysdata, 'user_data', nr.user_data,
        'node', {NODE_VIEW}, 'deployment', {DEPLOYMENT_VIEW})
"""

NODEROLES = """
    node_roles nr JOIN roles r ON r.id = nr.role_id JOIN nodes n ON n.id = nr.node_id
    JOIN deployments d ON d.id = nr.deployment_id
    LEFT JOIN deployment_roles dr ON dr.deployment_id = nr.deployment_id AND dr.role_id = nr.role_id
"""

# --- what is stored of a view

MAX_ERROR_CHARS = 2000
"""Characters of a noderole's error that are stored with a call."""
MAX_KEYS, MAX_KEY_CHARS, MAX_VALUE_CHARS = 16, 64, 256
"""The limits for an object whose old values are stored: keys, characters of a key, characters of a value as JSON."""
MAX_OLD_VALUES_BYTES = 16 * 1024
"""Bytes of all old values that are stored with a call, also after several waiting calls became one."""

NODEROLE_BRIEF = f"""
    jsonb_build_object('role', r.name, 'node', jsonb_build_object('name', n.name),
                       'error', left(nr.error, {MAX_ERROR_CHARS}), 'run_id', nr.run_id)
"""
"""SQL for what is stored of a noderole: the values of the moment of its transition, beside its state, and its names."""

_KEPT_AS_STORED = ("state", "error", "run_id")


def brief_noderole(view: JsonObject) -> JsonObject:
    """Return from a complete view what `NODEROLE_BRIEF` has, and the state."""
    node, error = view.get("node"), view.get("error")
    return {
        "role": view.get("role"),
        "node": {"name": node.get("name") if isinstance(node, dict) else ""},
        "state": view.get("state"),
        "error": error[:MAX_ERROR_CHARS] if isinstance(error, str) else "",
        "run_id": view.get("run_id"),
    }


def brief_before(old: Mapping[str, Json], new: Mapping[str, Json]) -> JsonObject:
    """Return the old values of what changed of a node, if they are small; of an object only the keys that differ.

    A value that is too large, or was not there, is null: its name tells that it changed.
    """
    brief: JsonObject = {}
    for name, value in old.items():
        now = new.get(name)
        if isinstance(value, dict) and isinstance(now, dict):
            brief[name] = _old_differing_values(value, now)
        else:
            brief[name] = _small_or_null(value, MAX_KEYS * MAX_VALUE_CHARS)
    return brief


def _old_differing_values(old: JsonObject, new: JsonObject) -> JsonObject:
    absent = object()
    names = [name for name in old.keys() | new.keys() if old.get(name, absent) != new.get(name, absent)]
    # The address of a node is what most hooks need, so it is never left out.
    names.sort(key=lambda name: (name != "address", name))
    stored_names = [name for name in names if len(name) <= MAX_KEY_CHARS][:MAX_KEYS]
    return {name: _small_or_null(old.get(name), MAX_VALUE_CHARS) for name in stored_names}


def _small_or_null(value: Json, max_chars: int) -> Json:
    return value if len(json.dumps(value)) <= max_chars else None


# --- what hooks are shown


async def read_node_view(session: Session, id: int) -> JsonObject | None:
    """Read a node as hooks see it, as of now; None if it is gone."""
    view: JsonObject | None = await session.value(f"SELECT {NODE_VIEW} AS view FROM nodes n WHERE n.id = :id", id=id)
    return view


async def read_noderole_view(session: Session, id: int) -> JsonObject | None:
    """Read a noderole as its hooks see it, as of now; None if it is gone."""
    view: JsonObject | None = await session.value(
        f"SELECT {NODEROLE_VIEW} AS view FROM {NODEROLES} WHERE nr.id = :id", id=id
    )
    return view


async def read_shown_view(
    session: Session, call_id: int, subject: str, subject_id: int, stored: JsonObject
) -> JsonObject | None:
    """Read all that a handler is shown of the subject of a call; None: it is gone, and has no last state."""
    if subject == "node":
        node = await read_node_view(session, subject_id) or await _read_last_state(session, call_id)
        return None if node is None else {**node, "before": stored.get("before", {})}
    if subject == "noderole":
        noderole = await read_noderole_view(session, subject_id)
        kept_values = {name: stored[name] for name in _KEPT_AS_STORED if name in stored}
        return None if noderole is None else {**noderole, **kept_values}
    return stored


async def _read_last_state(session: Session, call_id: int) -> JsonObject | None:
    view: JsonObject | None = await session.value(
        "SELECT v.view FROM hook_calls h JOIN hook_views v ON v.id = h.view_id WHERE h.id = :id", id=call_id
    )
    return view


async def keep_last_state(session: Session, node_id: int) -> int | None:
    """Store the last state of a node that is about to be deleted, once for new calls and those that wait.

    Return its id; None: the node is a phantom.
    """
    await forget_last_states(session)
    id: int | None = await session.value(
        f"INSERT INTO hook_views (view) SELECT {NODE_VIEW} FROM nodes n WHERE n.id = :id AND NOT n.system RETURNING id",
        id=node_id,
    )
    # A call that is just being ended (locked) was shown its node already, and its transaction may wait for this one.
    await session.run(
        "UPDATE hook_calls SET view_id = :view_id WHERE id IN (SELECT id FROM hook_calls"
        " WHERE subject_id = :id AND subject = 'node' FOR UPDATE SKIP LOCKED)",
        view_id=id,
        id=node_id,
    )
    return id


async def forget_last_state(session: Session, id: int) -> None:
    """Delete the last state that an ended call had, if no other call needs it.

    The row is locked first, so that transactions that end other calls wait: otherwise two that end at once would each
    leave the deletion to the other.
    """
    await session.run("SELECT FROM hook_views WHERE id = :id FOR UPDATE", id=id)
    await session.run(
        "DELETE FROM hook_views v WHERE v.id = :id AND NOT EXISTS (SELECT FROM hook_calls h WHERE h.view_id = v.id)",
        id=id,
    )


async def forget_last_states(session: Session) -> None:
    """Delete the last states that no call needs any more, because calls were given up or deleted with their node."""
    await session.run(
        "DELETE FROM hook_views WHERE id IN (SELECT id FROM hook_views v"
        " WHERE NOT EXISTS (SELECT FROM hook_calls h WHERE h.view_id = v.id) FOR UPDATE SKIP LOCKED)"
    )
