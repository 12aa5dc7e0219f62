"""The classes that barclamp authors write hooks with, and the JSON form of views and effects."""

import json
from dataclasses import asdict

import pytest

from rackwright.domain.effects import (
    effects_from_json,
    effects_to_json,
    outcome_from_json,
    outcome_to_json,
    view_from_json,
)
from rackwright.domain.errors import Invalid
from rackwright.domain.hooks import (
    ALIASES,
    ALLOCATION_HOOKS,
    DEPLOYMENT_HOOKS,
    HOOKS,
    NETWORK_HOOKS,
    NODE_HOOKS,
    STATE_HOOKS,
    DeploymentView,
    Effect,
    Enqueue,
    Log,
    NodeRoleView,
    NodeView,
    Refuse,
    RoleHooks,
    SetDeploymentRoleData,
    SetNode,
    SetNodeAttribute,
    SetSysdata,
    find_class_fault,
    implemented_hooks,
    view_type_of,
)
from rackwright.domain.runs import Outcome
from rackwright.domain.states import ACTIVE

NODE = NodeView(7, "n1.rack.example", macs=("02:00:00:00:00:01",), discovery={"a": {"b": 1}}, hint={"a": {"c": 2}})
DEPLOYMENT = DeploymentView(3, "web", template={"port": 1, "x": 1}, wall={"port": 2}, committed={"port": 3})
NODEROLE = NodeRoleView(9, "web", NODE, DEPLOYMENT, ACTIVE, wall={"y": 1}, sysdata={"y": 2}, user_data={"x": 5})

EFFECTS: list[Effect] = [
    SetNode(bootenv="local", alive=False),
    SetNodeAttribute("rack", {"row": 1}, node=4),
    SetSysdata({"a": None}),
    SetDeploymentRoleData({"a": [1, "two"]}, deployment=3),
    Enqueue(role="dhcp-database"),
    Enqueue(noderole=5),
    Refuse("no"),
    Log("yes"),
]


def test_the_hooks_of_the_role_model_are_all_there() -> None:
    assert set(STATE_HOOKS.values()) == {
        *("on_proposed", "on_todo", "on_blocked", "on_transition", "on_active", "on_error")
    }
    assert {
        "on_deployment_create",
        "on_deployment_delete",
        "on_commit",
        "on_node_bind",
        *NODE_HOOKS,
        *NETWORK_HOOKS,
        *ALLOCATION_HOOKS,
    } < HOOKS
    assert ALIASES == {"on_node_change": "on_node_update"}


def test_each_hook_takes_the_one_argument_of_the_seed() -> None:
    assert {hook: view_type_of(hook) for hook in NODE_HOOKS} == dict.fromkeys(NODE_HOOKS, NodeView)
    assert {hook: view_type_of(hook) for hook in DEPLOYMENT_HOOKS} == dict.fromkeys(DEPLOYMENT_HOOKS, DeploymentView)
    assert {view_type_of(hook) for hook in (*STATE_HOOKS.values(), "on_commit", "on_node_bind")} == {NodeRoleView}


def test_layers_win_in_the_models_order() -> None:
    assert DEPLOYMENT.data == {"port": 3, "x": 1}
    assert NODEROLE.data == {"port": 3, "x": 5, "y": 2}
    assert NODE.data == {"a": {"b": 1, "c": 2}}


@pytest.mark.parametrize(
    ("hook", "view"), [("on_node_create", NODE), ("on_deployment_create", DEPLOYMENT), ("on_active", NODEROLE)]
)
def test_views_come_back_as_they_went(hook: str, view: NodeView | DeploymentView | NodeRoleView) -> None:
    assert view_from_json(hook, json.loads(json.dumps(asdict(view)))) == view


def test_effects_come_back_as_they_went() -> None:
    assert effects_from_json(json.loads(json.dumps(effects_to_json(iter(EFFECTS))))) == EFFECTS
    assert effects_to_json(None) == []
    assert effects_to_json(Log("one")) == [{"effect": "Log", "message": "one"}]


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {},
        [1],
        [{"effect": "Nothing"}],
        [{"effect": "Log"}],
        [{"effect": "Log", "message": 1}],
        [{"effect": "Log", "message": "x", "more": 1}],
        [{"effect": "Enqueue", "noderole": True, "role": None}],
        [{"effect": "SetSysdata", "data": [], "noderole": None}],
        [{"effect": "SetNode", "bootenv": None, "alive": 1, "available": None, "stay_on": None, "node": None}],
        [{"effect": "Log", "message": "x"}] * 1001,
    ],
)
def test_what_is_no_effect_is_refused(wrong: None) -> None:
    with pytest.raises(Invalid):
        effects_from_json(wrong)


def test_outcomes_come_back_as_they_went() -> None:
    for outcome in (Outcome.success({"a": 1}), Outcome.failure("why"), Outcome.accepted()):
        assert outcome_from_json(json.loads(json.dumps(outcome_to_json(outcome)))) == outcome
    with pytest.raises(Invalid, match="Outcome"):
        outcome_to_json(None)
    with pytest.raises(Invalid, match="no outcome"):
        outcome_from_json({"answer": "maybe", "error": "", "wall": {}})


class Watching(RoleHooks):
    role = "web"

    def on_active(self, noderole: NodeRoleView) -> None: ...

    def on_node_change(self, node: NodeView) -> None: ...

    def on_network_create(self, network: object) -> None: ...


def test_a_class_has_the_hooks_that_it_defines_each_under_one_name() -> None:
    assert implemented_hooks(Watching) == {"on_active", "on_node_update", "on_network_create"}
    assert implemented_hooks(type("Derived", (Watching,), {"role": "other"})) == implemented_hooks(Watching)
    assert find_class_fault(Watching, ["web"]) is None


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ({}, "does not say which role"),
        ({"role": "wab"}, "did you mean 'web'"),
        ({"role": "web", "on_activ": print}, "did you mean 'on_active'"),
        ({"role": "web", "on_node_change": print, "on_node_update": print}, "two names of one hook"),
    ],
)
def test_a_wrong_class_is_refused_with_the_reason(names: dict[str, object], reason: str) -> None:
    assert reason in (find_class_fault(type("Wrong", (RoleHooks,), names), ["web"]) or "")
