"""What handlers of hooks are shown: read when a call is made, from the ids that were stored with it.

A stored call is small, however much there is to say of what it is about: what a machine found out about itself is up to
64 KiB, and a change of it is told to every role and jig that wants to know. Only what is gone when the call is made has
its last state stored, once for all who are told.
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

# --- what is stored

MOST_ERROR = 2000
"""Characters of a noderole's error that are stored with a call."""
MOST_KEYS, MOST_KEY, MOST_VALUE = 16, 64, 256
"""Of an object whose old values are stored: keys, characters of a key, and characters of a value as JSON."""
MOST_BEFORE = 16 * 1024
"""Bytes of all old values that are stored with a call, also after calls that wait became one."""

NODEROLE_BRIEF = f"""
    jsonb_build_object('role', r.name, 'node', jsonb_build_object('name', n.name),
                       'error', left(nr.error, {MOST_ERROR}), 'run_id', nr.run_id)
"""
"""Of the noderole what holds for the moment of its transition, beside its state; and how people know it."""

_OF_THE_MOMENT = ("state", "error", "run_id")


def brief_noderole(view: JsonObject) -> JsonObject:
    """As `NODEROLE_BRIEF`, of a whole view."""
    node, error = view.get("node"), view.get("error")
    return {
        "role": view.get("role"),
        "node": {"name": node.get("name") if isinstance(node, dict) else ""},
        "state": view.get("state"),
        "error": error[:MOST_ERROR] if isinstance(error, str) else "",
        "run_id": view.get("run_id"),
    }


def brief_before(old: Mapping[str, Json], new: Mapping[str, Json]) -> JsonObject:
    """The old values of what changed of a node, as far as they are small. Of an object only the keys that differ.

    What is too large, or was not there, is null: its name says that it changed.
    """
    brief: JsonObject = {}
    for name, value in old.items():
        now = new.get(name)
        if isinstance(value, dict) and isinstance(now, dict):
            brief[name] = _differing(value, now)
        else:
            brief[name] = _small(value, MOST_KEYS * MOST_VALUE)
    return brief


def _differing(old: JsonObject, new: JsonObject) -> JsonObject:
    absent = object()
    names = [name for name in old.keys() | new.keys() if old.get(name, absent) != new.get(name, absent)]
    # Where a node is found is what most want to know, so it is never left out.
    names.sort(key=lambda name: (name != "address", name))
    kept = [name for name in names if len(name) <= MOST_KEY][:MOST_KEYS]
    return {name: _small(old.get(name), MOST_VALUE) for name in kept}


def _small(value: Json, most: int) -> Json:
    return value if len(json.dumps(value)) <= most else None


# --- what is shown


async def node_view(session: Session, id: int) -> JsonObject | None:
    """A node as hooks see it, now."""
    view: JsonObject | None = await session.value(f"SELECT {NODE_VIEW} AS view FROM nodes n WHERE n.id = :id", id=id)
    return view


async def noderole_view(session: Session, id: int) -> JsonObject | None:
    """A noderole as its hooks see it, now."""
    view: JsonObject | None = await session.value(
        f"SELECT {NODEROLE_VIEW} AS view FROM {NODEROLES} WHERE nr.id = :id", id=id
    )
    return view


async def shown_view(
    session: Session, call_id: int, subject: str, subject_id: int, stored: JsonObject
) -> JsonObject | None:
    """All that a handler is shown of what a call is about; None: it is gone, and there is nothing left to say of it."""
    if subject == "node":
        node = await node_view(session, subject_id) or await _last_state(session, call_id)
        return None if node is None else {**node, "before": stored.get("before", {})}
    if subject == "noderole":
        noderole = await noderole_view(session, subject_id)
        moment = {name: stored[name] for name in _OF_THE_MOMENT if name in stored}
        return None if noderole is None else {**noderole, **moment}
    return stored


async def _last_state(session: Session, call_id: int) -> JsonObject | None:
    view: JsonObject | None = await session.value(
        "SELECT v.view FROM hook_calls h JOIN hook_views v ON v.id = h.view_id WHERE h.id = :id", id=call_id
    )
    return view


async def keep_last_state(session: Session, node_id: int) -> int | None:
    """Store a node that is about to go, once for all who are told, and for calls that wait; None: it is a phantom."""
    await forget_last_states(session)
    id: int | None = await session.value(
        f"INSERT INTO hook_views (view) SELECT {NODE_VIEW} FROM nodes n WHERE n.id = :id AND NOT n.system RETURNING id",
        id=node_id,
    )
    # One that is just being ended has been shown its node, and whoever ends it may wait for that.
    await session.run(
        "UPDATE hook_calls SET view_id = :view_id WHERE id IN (SELECT id FROM hook_calls"
        " WHERE subject_id = :id AND subject = 'node' FOR UPDATE SKIP LOCKED)",
        view_id=id,
        id=node_id,
    )
    return id


async def forget_last_state(session: Session, id: int) -> None:
    """Forget the last state that a call had which ended, if it was the last call. Who ends another one waits for us:
    otherwise two that end at once would each leave it to the other."""
    await session.run("SELECT FROM hook_views WHERE id = :id FOR UPDATE", id=id)
    await session.run(
        "DELETE FROM hook_views v WHERE v.id = :id AND NOT EXISTS (SELECT FROM hook_calls h WHERE h.view_id = v.id)",
        id=id,
    )


async def forget_last_states(session: Session) -> None:
    """Forget the last states that no call needs any more, because calls were given up or went with their node."""
    await session.run(
        "DELETE FROM hook_views WHERE id IN (SELECT id FROM hook_views v"
        " WHERE NOT EXISTS (SELECT FROM hook_calls h WHERE h.view_id = v.id) FOR UPDATE SKIP LOCKED)"
    )
