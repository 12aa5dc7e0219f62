"""Conversion of hook views and hook effects from and to JSON, for the processes that run hooks.

The server sends a view to such a process and reads effects back. These are not trusted to have the right shape:
anything else than an effect, spelled and typed as in `hooks.py`, is refused with the reason.
"""

from collections.abc import Iterable
from dataclasses import asdict, fields
from types import UnionType
from typing import get_args

from rackwright.domain.barclamps.fields import shorten_value
from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.errors import Invalid
from rackwright.domain.hooks import (
    AllocationView,
    DeploymentView,
    Effect,
    Effects,
    Enqueue,
    Log,
    NetworkView,
    NodeRoleView,
    NodeView,
    Refuse,
    SetDeploymentRoleData,
    SetNode,
    SetNodeAttribute,
    SetSysdata,
    View,
    view_type_of,
)
from rackwright.domain.runs import Answer, Outcome
from rackwright.domain.states import NodeRoleState

MAX_EFFECTS = 1000
MAX_MESSAGE = 2000

_KINDS: dict[str, type[Effect]] = {kind.__name__: kind for kind in get_args(Effect)}

_TYPES: dict[type[Effect], dict[str, type | UnionType]] = {
    SetNode: {
        "bootenv": str | None,
        "alive": bool | None,
        "available": bool | None,
        "stay_on": bool | None,
        "node": int | None,
    },
    SetNodeAttribute: {"attrib": str, "value": object, "node": int | None},
    SetSysdata: {"data": dict, "noderole": int | None},
    SetDeploymentRoleData: {"data": dict, "deployment": int | None},
    Enqueue: {"noderole": int | None, "role": str | None},
    Refuse: {"message": str},
    Log: {"message": str},
}


# --- on the way to the hook


def view_from_json(hook: str, values: JsonObject) -> View:
    """Return the view that a hook is called with."""
    view_type = view_type_of(hook)
    if view_type is NodeView:
        return _node_view(values)
    if view_type is NetworkView:
        lists = {name: tuple(values.get(name) or ()) for name in ("ranges", "routers")}  # type: ignore[arg-type]
        return NetworkView(**{**values, **lists})  # type: ignore[arg-type]  # our own server wrote it
    if view_type is AllocationView:
        return AllocationView(**values)  # type: ignore[arg-type]  # our own server wrote it
    return _deployment_view(values) if view_type is DeploymentView else _noderole_view(values)


def _node_view(values: JsonObject) -> NodeView:
    lists = {name: tuple(values.get(name) or ()) for name in ("macs", "quirks", "roles")}  # type: ignore[arg-type]
    return NodeView(**{**values, **lists})  # type: ignore[arg-type]  # our own server wrote it


def _deployment_view(values: JsonObject) -> DeploymentView:
    return DeploymentView(**values)  # type: ignore[arg-type]  # our own server wrote it


def _noderole_view(values: JsonObject) -> NodeRoleView:
    node, deployment, state = values["node"], values["deployment"], values["state"]
    assert isinstance(node, dict)
    assert isinstance(deployment, dict)
    assert isinstance(state, int)
    parts: dict[str, object] = {
        "node": _node_view(node),
        "deployment": _deployment_view(deployment),
        "state": NodeRoleState(state),
    }
    return NodeRoleView(**{**values, **parts})  # type: ignore[arg-type]  # our own server wrote it


# --- on the way back


def effects_to_json(returned: Effects | object) -> list[JsonObject]:
    """Return as JSON what a hook returned: nothing, one effect, or any number of them."""
    if returned is None:
        return []
    if isinstance(returned, get_args(Effect)):
        return [_effect_to_json(returned)]
    if not isinstance(returned, Iterable) or isinstance(returned, str | bytes | dict):
        raise Invalid(f"A hook returns effects, a list of them, or None, and not {type(returned).__name__}.")
    listed: list[JsonObject] = []
    for effect in returned:
        if not isinstance(effect, get_args(Effect)):
            raise Invalid(f"A hook returns effects, and {type(effect).__name__} is none.")
        if len(listed) == MAX_EFFECTS:
            raise Invalid(f"A hook returned more than {MAX_EFFECTS} effects.")
        listed.append(_effect_to_json(effect))
    return listed


def _effect_to_json(effect: Effect) -> JsonObject:
    return {"effect": type(effect).__name__, **asdict(effect)}


def effects_from_json(values: Json) -> list[Effect]:
    """Read effects that another process sent; raise Invalid with what is wrong with them."""
    if not isinstance(values, list) or len(values) > MAX_EFFECTS:
        raise Invalid(f"The hook returned no list of at most {MAX_EFFECTS} effects.")
    return [_effect_from_json(value) for value in values]


def _effect_from_json(value: Json) -> Effect:
    if not isinstance(value, dict) or not isinstance(value.get("effect"), str):
        raise Invalid(f"The hook returned {shorten_value(value)}, which is no effect.")
    kind = _KINDS.get(str(value["effect"]))
    if kind is None:
        raise Invalid(f"There is no effect {shorten_value(value['effect'])}.")
    arguments = {name: argument for name, argument in value.items() if name != "effect"}
    if arguments.keys() != {field.name for field in fields(kind)}:
        raise Invalid(f"The effect {kind.__name__} has other fields than {', '.join(sorted(arguments))}.")
    for name, expected in _TYPES[kind].items():
        if not _is_of_type(arguments[name], expected):
            raise Invalid(f"{kind.__name__}.{name} cannot be {shorten_value(arguments[name])}.")
    return kind(**arguments)  # type: ignore[arg-type]  # checked just above


def _is_of_type(value: Json, expected: type | UnionType) -> bool:
    if isinstance(value, bool):  # Python counts it as an int
        return expected is object or expected == bool | None
    return isinstance(value, expected)


def outcome_to_json(outcome: Outcome | object) -> JsonObject:
    if not isinstance(outcome, Outcome):
        raise Invalid(f"do_transition returns an Outcome, and not {type(outcome).__name__}.")
    return {"answer": outcome.answer.value, "error": outcome.error, "wall": outcome.wall}


def outcome_from_json(value: Json) -> Outcome:
    if isinstance(value, dict):
        answer, error, wall = value.get("answer"), value.get("error"), value.get("wall")
        if answer in set(Answer) and isinstance(error, str) and isinstance(wall, dict):
            return Outcome(Answer(str(answer)), error[:MAX_MESSAGE], wall)
    raise Invalid(f"do_transition returned {shorten_value(value)}, which is no outcome.")
