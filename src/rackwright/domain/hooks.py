"""Hooks of roles: the base class for a barclamp's `roles.py`, the views that hooks get, the effects they return.

A hook is a function from plain values to effects. It changes nothing itself: the store applies the effects that it
returned, in the transaction that marks the hook as done. So a hook is easy to test, and safe to repeat. This module is
imported by the worker processes that run hooks, so it stays light. The JSON form of views and effects is in
`effects.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from rackwright.domain.attributes import merge
from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.runs import Outcome
from rackwright.domain.states import NodeRoleState

# --- what hooks get


@dataclass(frozen=True)
class DeploymentView:
    """A deployment, and its data for the role whose hook is called."""

    id: int
    name: str
    description: str = ""
    parent: str | None = None
    template: JsonObject = field(default_factory=dict)
    wall: JsonObject = field(default_factory=dict)
    """What hooks set as defaults."""
    committed: JsonObject = field(default_factory=dict)
    """What people committed."""

    @property
    def data(self) -> JsonObject:
        """The role's data in this deployment: template, then wall, then what people committed."""
        return merge(self.template, self.wall, self.committed)


@dataclass(frozen=True)
class NodeView:
    """A node.

    On an update `before` has the old values of what changed, as far as they are small: of `discovery` and `hint` only
    the keys that differ, and null for large values. On a delete the view is the node's last state.
    """

    id: int
    name: str
    description: str = ""
    admin: bool = False
    system: bool = False
    alive: bool = False
    available: bool = False
    bootenv: str = ""
    observed_bootenv: str = ""
    boot_id: str | None = None
    deployment: str = ""
    uuid: str | None = None
    macs: tuple[str, ...] = ()
    discovery: JsonObject = field(default_factory=dict)
    hint: JsonObject = field(default_factory=dict)
    quirks: tuple[str, ...] = ()
    stay_on: bool = False
    roles: tuple[str, ...] = ()
    """The roles bound to it, by name."""
    before: JsonObject = field(default_factory=dict)

    @property
    def changed(self) -> frozenset[str]:
        """The names of the fields that changed since the hook was last called for this node."""
        return frozenset(self.before)

    @property
    def data(self) -> JsonObject:
        """Its attribute values: what was discovered, then what people hinted."""
        return merge(self.discovery, self.hint)


@dataclass(frozen=True)
class NodeRoleView:
    """A noderole at the time of the transition (or the plan) that the hook is called for."""

    id: int
    """0 while the noderole is only about to be bound."""
    role: str
    node: NodeView
    deployment: DeploymentView
    state: NodeRoleState
    cohort: int = 0
    error: str = ""
    run_id: int | None = None
    wall: JsonObject = field(default_factory=dict)
    sysdata: JsonObject = field(default_factory=dict)
    user_data: JsonObject = field(default_factory=dict)
    input: JsonObject = field(default_factory=dict)
    """For do_transition: the whole input of the run. Empty for hooks."""

    @property
    def data(self) -> JsonObject:
        """The noderole's own data: that of its deployment, then wall, sysdata and what people set."""
        return merge(self.deployment.data, self.wall, self.sysdata, self.user_data)


@dataclass(frozen=True)
class NetworkView:
    """A network. On a change `before` has the old values of what changed; on a delete the view is its last state."""

    id: int
    name: str
    category: str
    description: str = ""
    vlan: int | None = None
    v4_subnet: str | None = None
    v6_subnet: str | None = None
    ranges: tuple[JsonObject, ...] = ()
    """Each with name, use, first and last."""
    routers: tuple[JsonObject, ...] = ()
    """Each with address and preference."""
    before: JsonObject = field(default_factory=dict)

    @property
    def changed(self) -> frozenset[str]:
        return frozenset(self.before)


@dataclass(frozen=True)
class AllocationView:
    """An address that a node has on a network, or had."""

    id: int
    network: str
    node_id: int
    node: str
    address: str


View = DeploymentView | NodeView | NodeRoleView | NetworkView | AllocationView


# --- what hooks return


@dataclass(frozen=True)
class SetNode:
    """Set fields of a node that the server decides; a field that is None stays as it is.

    `node` None: the node the hook was called for.
    """

    bootenv: str | None = None
    alive: bool | None = None
    available: bool | None = None
    stay_on: bool | None = None
    node: int | None = None


@dataclass(frozen=True)
class SetNodeAttribute:
    """Set an attrib of a node, as discovery would: a person's hint still wins."""

    attrib: str
    value: Json
    node: int | None = None


@dataclass(frozen=True)
class SetSysdata:
    """Merge into the sysdata of noderoles of the hook's own role; null takes a key away.

    `noderole` None: the one the hook was called for, or else every one of the role.
    """

    data: JsonObject
    noderole: int | None = None


@dataclass(frozen=True)
class SetDeploymentRoleData:
    """Merge into the deployment's default data for the hook's own role; null takes a key away.

    `deployment` None: the one the hook was called for, or that of its noderole.
    """

    data: JsonObject
    deployment: int | None = None


@dataclass(frozen=True)
class Enqueue:
    """Run noderoles again: one, or else all of a role (the hook's own role if none is named)."""

    noderole: int | None = None
    role: str | None = None


@dataclass(frozen=True)
class Refuse:
    """Refuse the request: the person gets a conflict with this message, and nothing changes."""

    message: str


@dataclass(frozen=True)
class Log:
    """Write a line among the events."""

    message: str


Effect = SetNode | SetNodeAttribute | SetSysdata | SetDeploymentRoleData | Enqueue | Refuse | Log
Effects = Iterable[Effect] | Effect | None


# --- the class


class RoleHooks:
    """Base class of the hooks of one role.

    Derive from it in `roles.py`, once for each role that has hooks; define only the methods that the role needs.
    """

    role: ClassVar[str]
    """The name of the role."""

    # Just after the noderole's transition to the state in the name.
    def on_proposed(self, noderole: NodeRoleView) -> Effects: ...
    def on_todo(self, noderole: NodeRoleView) -> Effects: ...
    def on_blocked(self, noderole: NodeRoleView) -> Effects: ...
    def on_transition(self, noderole: NodeRoleView) -> Effects: ...
    def on_active(self, noderole: NodeRoleView) -> Effects: ...
    def on_error(self, noderole: NodeRoleView) -> Effects: ...

    # For every node there is, whether or not the role is bound to it.
    def on_node_create(self, node: NodeView) -> Effects: ...
    def on_node_update(self, node: NodeView) -> Effects: ...
    def on_node_change(self, node: NodeView) -> Effects: ...
    def on_node_delete(self, node: NodeView) -> Effects: ...

    # For every network and every address of a node, whether or not the role is bound.
    def on_network_create(self, network: NetworkView) -> Effects: ...
    def on_network_change(self, network: NetworkView) -> Effects: ...
    def on_network_delete(self, network: NetworkView) -> Effects: ...
    def on_allocation_create(self, allocation: AllocationView) -> Effects: ...
    def on_allocation_delete(self, allocation: AllocationView) -> Effects: ...

    # These may refuse.
    def on_deployment_create(self, deployment: DeploymentView) -> Effects: ...
    def on_deployment_delete(self, deployment: DeploymentView) -> Effects: ...
    def on_commit(self, noderole: NodeRoleView) -> Effects: ...
    def on_node_bind(self, noderole: NodeRoleView) -> Effects: ...

    def do_transition(self, noderole: NodeRoleView) -> Outcome:
        """Do the work of a noderole whose jig is role-provided. It may take as long as its run may."""
        raise NotImplementedError(f"role {self.role} has no do_transition")


STATE_HOOKS: dict[NodeRoleState, str] = {state: f"on_{state.label}" for state in NodeRoleState}
NODE_HOOKS = ("on_node_create", "on_node_update", "on_node_delete")
DEPLOYMENT_HOOKS = ("on_deployment_create", "on_deployment_delete")
BINDING_HOOKS = ("on_commit", "on_node_bind")
REFUSING = frozenset({*DEPLOYMENT_HOOKS, *BINDING_HOOKS})
"""The hooks that are called before the transaction; their Refuse stops it."""

ALIASES = {"on_node_change": "on_node_update"}
"""Other names of hooks, as some descriptions of the model have them: alias -> name."""

NETWORK_HOOKS = ("on_network_create", "on_network_change", "on_network_delete")
ALLOCATION_HOOKS = ("on_allocation_create", "on_allocation_delete")

DO_TRANSITION = "do_transition"

HOOKS = frozenset({*STATE_HOOKS.values(), *NODE_HOOKS, *REFUSING, *NETWORK_HOOKS, *ALLOCATION_HOOKS, DO_TRANSITION})


def view_type_of(hook: str) -> type[View]:
    """Return the type of the view that a hook is called with."""
    if hook in NODE_HOOKS:
        return NodeView
    if hook in NETWORK_HOOKS:
        return NetworkView
    if hook in ALLOCATION_HOOKS:
        return AllocationView
    return DeploymentView if hook in DEPLOYMENT_HOOKS else NodeRoleView


class FollowsNodes(RoleHooks, ABC):
    """Base class for roles whose one run publishes all nodes and their addresses anew.

    Every change that concerns the role asks for a run, and one run is enough for many changes.
    """

    @abstractmethod
    def concerns(self, node: NodeView) -> bool:
        """Return whether a change of this node changes what is published."""

    def on_node_update(self, node: NodeView) -> Effects:
        return Enqueue() if self.concerns(node) else None

    def on_node_create(self, node: NodeView) -> Effects:
        return Enqueue()

    def on_node_delete(self, node: NodeView) -> Effects:
        return Enqueue()

    def on_network_create(self, network: NetworkView) -> Effects:
        return Enqueue()

    def on_network_change(self, network: NetworkView) -> Effects:
        return Enqueue()

    def on_network_delete(self, network: NetworkView) -> Effects:
        return Enqueue()

    def on_allocation_create(self, allocation: AllocationView) -> Effects:
        return Enqueue()

    def on_allocation_delete(self, allocation: AllocationView) -> Effects:
        return Enqueue()


def implemented_hooks(hooks: type[RoleHooks]) -> frozenset[str]:
    """Return the hooks that a class implements, each by its proper name and not by an alias."""
    overridden = {
        name for name in (HOOKS | ALIASES.keys()) if getattr(hooks, name, None) is not getattr(RoleHooks, name, None)
    }
    return frozenset(ALIASES.get(name, name) for name in overridden)


def find_class_fault(hooks: type[RoleHooks], roles: Iterable[str]) -> str | None:
    """Return what is wrong with a class of `roles.py`; None if nothing is."""
    from rackwright.domain.barclamps.fields import suggest_name

    role = getattr(hooks, "role", None)
    if not isinstance(role, str):
        return f'Class {hooks.__name__} does not say which role it is of: give it `role = "..."`.'
    if role not in roles:
        hint = suggest_name(role, roles) or "."
        return f"Class {hooks.__name__} is of role {role!r}, which this barclamp does not declare{hint}"
    known = HOOKS | ALIASES.keys()
    unknown = sorted(name for name in vars(hooks) if name.startswith("on_") and name not in known)
    if unknown:
        return f"Class {hooks.__name__} has {unknown[0]}, which is no hook{suggest_name(unknown[0], known) or '.'}"
    twice = [(alias, name) for alias, name in ALIASES.items() if alias in vars(hooks) and name in vars(hooks)]
    if twice:
        return f"Class {hooks.__name__} has {twice[0][0]} and {twice[0][1]}, which are two names of one hook; keep one."
    return None
