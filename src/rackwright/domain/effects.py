"""Views and effects as JSON, for their way between the server and the processes that run hooks.

What comes back from a hook is not trusted to have the right shape: anything else than an effect, spelled and typed as
in `hooks.py`, is refused with the reason.
"""

from collections.abc import Iterable
from dataclasses import asdict, fields
from types import UnionType
from typing import get_args

from rackwright.domain.barclamps.fields import shown
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
    takes,
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
    """The value a hook is called with."""
    kind = takes(hook)
    if kind is NodeView:
        return _node(values)
    if kind is NetworkView:
        lists = {name: tuple(values.get(name) or ()) for name in ("ranges", "routers")}  # type: ignore[arg-type]
        return NetworkView(**{**values, **lists})  # type: ignore[arg-type]  # our own server wrote it
    if kind is AllocationView:
        return AllocationView(**values)  # type: ignore[arg-type]  # our own server wrote it
    return _deployment(values) if kind is DeploymentView else _noderole(values)


def _node(values: JsonObject) -> NodeView:
    lists = {name: tuple(values.get(name) or ()) for name in ("macs", "quirks", "roles")}  # type: ignore[arg-type]
    return NodeView(**{**values, **lists})  # type: ignore[arg-type]  # our own server wrote it


def _deployment(values: JsonObject) -> DeploymentView:
    return DeploymentView(**values)  # type: ignore[arg-type]  # our own server wrote it


def _noderole(values: JsonObject) -> NodeRoleView:
    node, deployment, state = values["node"], values["deployment"], values["state"]
    assert isinstance(node, dict)
    assert isinstance(deployment, dict)
    assert isinstance(state, int)
    parts: dict[str, object] = {
        "node": _node(node),
        "deployment": _deployment(deployment),
        "state": NodeRoleState(state),
    }
    return NodeRoleView(**{**values, **parts})  # type: ignore[arg-type]  # our own server wrote it


# --- on the way back


def effects_to_json(returned: Effects | object) -> list[JsonObject]:
    """What a hook returned: nothing, one effect, or any number of them."""
    if returned is None:
        return []
    if isinstance(returned, get_args(Effect)):
        return [_to_json(returned)]
    if not isinstance(returned, Iterable) or isinstance(returned, str | bytes | dict):
        raise Invalid(f"A hook returns effects, a list of them, or None, and not {type(returned).__name__}.")
    listed: list[JsonObject] = []
    for one in returned:
        if not isinstance(one, get_args(Effect)):
            raise Invalid(f"A hook returns effects, and {type(one).__name__} is none.")
        if len(listed) == MAX_EFFECTS:
            raise Invalid(f"A hook returned more than {MAX_EFFECTS} effects.")
        listed.append(_to_json(one))
    return listed


def _to_json(effect: Effect) -> JsonObject:
    return {"effect": type(effect).__name__, **asdict(effect)}


def effects_from_json(values: Json) -> list[Effect]:
    """Effects as another process gave them; Invalid says what is wrong with them."""
    if not isinstance(values, list) or len(values) > MAX_EFFECTS:
        raise Invalid(f"The hook returned no list of at most {MAX_EFFECTS} effects.")
    return [_effect(value) for value in values]


def _effect(value: Json) -> Effect:
    if not isinstance(value, dict) or not isinstance(value.get("effect"), str):
        raise Invalid(f"The hook returned {shown(value)}, which is no effect.")
    kind = _KINDS.get(str(value["effect"]))
    if kind is None:
        raise Invalid(f"There is no effect {shown(value['effect'])}.")
    given = {name: one for name, one in value.items() if name != "effect"}
    if given.keys() != {one.name for one in fields(kind)}:
        raise Invalid(f"The effect {kind.__name__} has other fields than {', '.join(sorted(given))}.")
    for name, expected in _TYPES[kind].items():
        if not _fits(given[name], expected):
            raise Invalid(f"{kind.__name__}.{name} cannot be {shown(given[name])}.")
    return kind(**given)  # type: ignore[arg-type]  # checked just above


def _fits(value: Json, expected: type | UnionType) -> bool:
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
    raise Invalid(f"do_transition returned {shown(value)}, which is no outcome.")
