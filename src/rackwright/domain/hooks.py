"""Hooks: what a barclamp's `roles.py` is written with. The base class, the values hooks get, the effects they return.

A hook is a function of plain values to effects. It changes nothing itself: the store applies what it returned, in one
transaction with marking it done. So a hook is easy to test, and safe to repeat. Imported by the worker processes that
run hooks, so it stays light. How effects look on their way between processes is in `effects.py`.
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
    """A deployment, and what it says of the role whose hook is called."""

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
        """What holds for the role here: template, then wall, then what people committed."""
        return merge(self.template, self.wall, self.committed)


@dataclass(frozen=True)
class NodeView:
    """A machine. On an update `before` has the old values of what changed, as far as they are small: of `discovery` and
    `hint` only the keys that differ, and null for what is large. On a delete all of it is the last state."""

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
        """The names of what changed since the hook was last told of this node."""
        return frozenset(self.before)

    @property
    def data(self) -> JsonObject:
        """Its attribute values: what was discovered, then what people hinted."""
        return merge(self.discovery, self.hint)


@dataclass(frozen=True)
class NodeRoleView:
    """A role on a node, as of the transition (or the plan) that the hook is called for."""

    id: int
    """0 while it is only about to be bound."""
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
    """For do_transition: all that the run was staged with. Empty for hooks."""

    @property
    def data(self) -> JsonObject:
        """Its own data: that of its deployment, then wall, sysdata and what people set."""
        return merge(self.deployment.data, self.wall, self.sysdata, self.user_data)


@dataclass(frozen=True)
class NetworkView:
    """A network. On a change `before` has the old values of what changed; on a delete all of it is the last state."""

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
    """Set what the server decides of a node; what is None stays. `node` None: the node the hook was called for."""

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
    """Merge into what the deployment says of the hook's own role by default; null takes a key away.

    `deployment` None: the one the hook was called for, or that of its noderole.
    """

    data: JsonObject
    deployment: int | None = None


@dataclass(frozen=True)
class Enqueue:
    """Have noderoles run again: one, or else all of a role (the hook's own if none is named)."""

    noderole: int | None = None
    role: str | None = None


@dataclass(frozen=True)
class Refuse:
    """Say no: the person gets a conflict with this message, and nothing changes."""

    message: str


@dataclass(frozen=True)
class Log:
    """Leave a line among the events."""

    message: str


Effect = SetNode | SetNodeAttribute | SetSysdata | SetDeploymentRoleData | Enqueue | Refuse | Log
Effects = Iterable[Effect] | Effect | None


# --- the class


class RoleHooks:
    """Derive from it in `roles.py`, once a role that has hooks; define only the methods that the role needs."""

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
        """The work itself, of roles whose jig is role-provided. It may take as long as its run may."""
        raise NotImplementedError(f"role {self.role} has no do_transition")


STATE_HOOKS: dict[NodeRoleState, str] = {state: f"on_{state.label}" for state in NodeRoleState}
NODE_HOOKS = ("on_node_create", "on_node_update", "on_node_delete")
DEPLOYMENT_HOOKS = ("on_deployment_create", "on_deployment_delete")
BINDING_HOOKS = ("on_commit", "on_node_bind")
REFUSING = frozenset({*DEPLOYMENT_HOOKS, *BINDING_HOOKS})
"""Asked before the transaction; their Refuse stops it."""

ALIASES = {"on_node_change": "on_node_update"}
"""Other names of hooks, as some of the model's texts have them."""

NETWORK_HOOKS = ("on_network_create", "on_network_change", "on_network_delete")
ALLOCATION_HOOKS = ("on_allocation_create", "on_allocation_delete")

DO_TRANSITION = "do_transition"

HOOKS = frozenset({*STATE_HOOKS.values(), *NODE_HOOKS, *REFUSING, *NETWORK_HOOKS, *ALLOCATION_HOOKS, DO_TRANSITION})


def takes(hook: str) -> type[View]:
    """What a hook is called with."""
    if hook in NODE_HOOKS:
        return NodeView
    if hook in NETWORK_HOOKS:
        return NetworkView
    if hook in ALLOCATION_HOOKS:
        return AllocationView
    return DeploymentView if hook in DEPLOYMENT_HOOKS else NodeRoleView


class FollowsNodes(RoleHooks, ABC):
    """A base for roles whose one run publishes all nodes and their addresses anew: every change that concerns it asks
    for a run, and one run is enough for many changes."""

    @abstractmethod
    def concerns(self, node: NodeView) -> bool:
        """Whether a change of this node changes what is published."""

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


def implemented(hooks: type[RoleHooks]) -> frozenset[str]:
    """The hooks a class has, each under its one name."""
    own = {
        name for name in (HOOKS | ALIASES.keys()) if getattr(hooks, name, None) is not getattr(RoleHooks, name, None)
    }
    return frozenset(ALIASES.get(name, name) for name in own)


def fault(hooks: type[RoleHooks], roles: Iterable[str]) -> str | None:
    """What is wrong with a class of `roles.py`; None if nothing is."""
    from rackwright.domain.barclamps.fields import nearest

    role = getattr(hooks, "role", None)
    if not isinstance(role, str):
        return f'Class {hooks.__name__} does not say which role it is of: give it `role = "..."`.'
    if role not in roles:
        hint = nearest(role, roles) or "."
        return f"Class {hooks.__name__} is of role {role!r}, which this barclamp does not declare{hint}"
    known = HOOKS | ALIASES.keys()
    unknown = sorted(name for name in vars(hooks) if name.startswith("on_") and name not in known)
    if unknown:
        return f"Class {hooks.__name__} has {unknown[0]}, which is no hook{nearest(unknown[0], known) or '.'}"
    twice = [(one, other) for one, other in ALIASES.items() if one in vars(hooks) and other in vars(hooks)]
    if twice:
        return f"Class {hooks.__name__} has {twice[0][0]} and {twice[0][1]}, which are two names of one hook; keep one."
    return None
