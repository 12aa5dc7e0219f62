"""The catalogue of barclamps, jigs, hammers, roles and attribs, and the relations between roles.

Nothing here is bound to a node. The catalogue is small (hundreds of roles) and read as a whole; the questions that
binding asks of it are answered from tables built once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from rackwright.domain.errors import Conflict, NotFound, Rule

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None
JsonObject = dict[str, Json]


class Flag(StrEnum):
    """A property of a role that decides how it is bound and run. The order is the one people see."""

    IMPLICIT = "implicit"
    BOOTSTRAP = "bootstrap"
    DISCOVERY = "discovery"
    CLUSTER = "cluster"
    SERVICE = "service"
    DESTRUCTIVE = "destructive"
    ABSTRACT = "abstract"
    MILESTONE = "milestone"
    POWERSAVE = "powersave"


EXCLUDES: dict[tuple[Flag, Flag], str] = {
    (Flag.CLUSTER, Flag.IMPLICIT): "children of a cluster wait for all its members, of an implicit role for one node's",
    (Flag.ABSTRACT, Flag.BOOTSTRAP): "an abstract role is never bound, a bootstrap role is bound at first start",
    (Flag.ABSTRACT, Flag.DISCOVERY): "an abstract role is never bound, a discovery role is bound to every new node",
    (Flag.SERVICE, Flag.DISCOVERY): "a service is on its deployment's phantom node, never on a discovered one",
    (Flag.SERVICE, Flag.IMPLICIT): "a service is on its deployment's phantom node, an implicit role on its child's",
    (Flag.SERVICE, Flag.POWERSAVE): "a service is on a phantom node, which has no power to save",
}
"""Pairs of flags that no role may have both, and why. Bootstrap and service is no such pair: so an outside service gets
into the system deployment, where people cannot bind."""


@dataclass(frozen=True)
class Jig:
    name: str
    barclamp: str
    kind: str
    """The implementation that does the work; `jigs/registry.py` finds them."""
    description: str = ""
    active: bool = True
    client_role: str | None = None
    """The role that makes a node able to take this jig's work; every role of the jig requires it."""


@dataclass(frozen=True)
class Hammer:
    name: str
    barclamp: str
    kind: str
    priority: int = 0
    description: str = ""


@dataclass(frozen=True)
class Attrib:
    """A named value at a path of the data of its owner: a role, or the node itself (`role` None)."""

    name: str
    barclamp: str
    map: tuple[str, ...]
    role: str | None = None
    description: str = ""
    schema: JsonObject | None = None
    """No schema: read-only for people."""
    default: Json = None
    has_default: bool = False
    secret: bool = False


@dataclass(frozen=True)
class Role:
    name: str
    barclamp: str
    jig: str
    description: str = ""
    requires: tuple[str, ...] = ()
    attaches: tuple[str, ...] = ()
    """Reverse requires: the roles named here require this one."""
    wants: tuple[str, ...] = ()
    """Names of the attribs that it takes from its parents or from the node."""
    provides: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    flags: frozenset[Flag] = frozenset()
    template: JsonObject = field(default_factory=dict)
    deadline: float | None = None
    """Seconds a run may take; None: the jig's, then an hour."""
    hooks: frozenset[str] = frozenset()
    """The hooks that the barclamp's `roles.py` implements for the role."""

    def has(self, flag: Flag) -> bool:
        return flag in self.flags


@dataclass(frozen=True)
class Barclamp:
    """Everything that one barclamp file declares."""

    name: str
    display: str = ""
    description: str = ""
    version: str = ""
    parent: str | None = None
    jigs: tuple[Jig, ...] = ()
    hammers: tuple[Hammer, ...] = ()
    roles: tuple[Role, ...] = ()
    attribs: tuple[Attrib, ...] = ()
    path: str = ""
    """Where it was imported from, for people; empty for one that came as data alone."""
    digest: str = ""
    """Of its files; empty for one that came as data alone."""
    archive: bytes = field(default=b"", repr=False)
    """Its files, packed; only while it is imported."""


@dataclass(frozen=True)
class Catalogue:
    """All imported roles, jigs and attribs, and the relations that follow from them."""

    roles: Mapping[str, Role]
    jigs: Mapping[str, Jig]
    attribs: Mapping[str, Attrib]

    @classmethod
    def of(cls, barclamps: Iterable[Barclamp]) -> "Catalogue":
        listed = list(barclamps)
        return cls(
            roles={role.name: role for barclamp in listed for role in barclamp.roles},
            jigs={jig.name: jig for barclamp in listed for jig in barclamp.jigs},
            attribs={attrib.name: attrib for barclamp in listed for attrib in barclamp.attribs},
        )

    def role(self, name: str) -> Role:
        if name not in self.roles:
            raise NotFound("role", name)
        return self.roles[name]

    def needed_roles(self, name: str) -> tuple[str, ...]:
        """Return the roles that must be bound before role `name`.

        These are its requires, the roles attached to it, the owners of the attribs it wants, and its jig's client role.
        Some may not be imported yet.
        """
        return self._needed.get(name, ())

    def providers(self, name: str) -> tuple[str, ...]:
        """Return the roles that provide role `name`, sorted by name."""
        return self._providers.get(name, ())

    def is_implicit(self, name: str) -> bool:
        """Return whether role `name` is implicit: a need of it is met only on the node of the role that needs it."""
        role = self.roles.get(name)
        return role is not None and role.has(Flag.IMPLICIT)

    def may_be_elsewhere(self, name: str) -> bool:
        """Return whether a noderole of role `name` may be needed from other nodes: by its name, or as a provider."""
        return not all(self.is_implicit(need) for need in (name, *self.role(name).provides))

    def rivals(self, name: str) -> frozenset[str]:
        """Return the roles that may not share a node with role `name` because one of the two declares a conflict.

        An abstract role is on no node, so a conflict with it holds for the roles that provide it.
        """
        return self._rivals.get(name, frozenset())

    def stand_ins(self, name: str) -> frozenset[str]:
        """Return the roles that provide role `name` or are provided by it."""
        return self._stand_ins.get(name, frozenset())

    def attribs_of(self, name: str) -> tuple[Attrib, ...]:
        """Return the attribs that a noderole of role `name` supplies: its own, and those of the roles it provides."""
        owners = {name, *self.roles[name].provides} if name in self.roles else {name}
        return tuple(attrib for attrib in self.attribs.values() if attrib.role in owners)

    def roles_with_hook(self, hook: str) -> tuple[str, ...]:
        """Return the roles that implement a hook, sorted by name."""
        return self._roles_by_hook.get(hook, ())

    def roles_with_flag(self, flag: Flag) -> tuple[str, ...]:
        return tuple(sorted(name for name, role in self.roles.items() if role.has(flag)))

    @cached_property
    def _roles_by_hook(self) -> dict[str, tuple[str, ...]]:
        roles: dict[str, list[str]] = {}
        for name in sorted(self.roles):
            for hook in self.roles[name].hooks:
                roles.setdefault(hook, []).append(name)
        return {hook: tuple(names) for hook, names in roles.items()}

    @cached_property
    def secret_attribs(self) -> tuple[Attrib, ...]:
        return tuple(attrib for attrib in self.attribs.values() if attrib.secret)

    @property
    def has_secrets(self) -> bool:
        return bool(self.secret_attribs)

    @cached_property
    def _needed(self) -> dict[str, tuple[str, ...]]:
        attached: dict[str, list[str]] = {}
        for name in sorted(self.roles):
            for host in self.roles[name].attaches:
                attached.setdefault(host, []).append(name)
        needed: dict[str, tuple[str, ...]] = {}
        for name, role in self.roles.items():
            jig = self.jigs.get(role.jig)
            client = [jig.client_role] if jig and jig.client_role and jig.client_role != name else []
            owners = [self.attribs[want].role for want in role.wants if want in self.attribs]
            # A role supplies the attribs of the roles it provides itself, so it needs no other role for those.
            others = [owner for owner in owners if owner and owner not in role.provides]
            names = [*client, *role.requires, *attached.get(name, ()), *others]
            needed[name] = tuple(dict.fromkeys(need for need in names if need != name))
        return needed

    @cached_property
    def _providers(self) -> dict[str, tuple[str, ...]]:
        providers: dict[str, list[str]] = {}
        for name in sorted(self.roles):
            for provided in self.roles[name].provides:
                providers.setdefault(provided, []).append(name)
        return {provided: tuple(names) for provided, names in providers.items()}

    @cached_property
    def _rivals(self) -> dict[str, frozenset[str]]:
        return _both_ways(
            (first, second)
            for name, role in self.roles.items()
            for conflict in role.conflicts
            for first in self._with_providers_if_abstract(name)
            for second in self._with_providers_if_abstract(conflict)
            if first != second or first == name == conflict
        )

    def _with_providers_if_abstract(self, name: str) -> tuple[str, ...]:
        role = self.roles.get(name)
        return (name, *self.providers(name)) if role and role.has(Flag.ABSTRACT) else (name,)

    def declared_conflict(self, first: str, second: str) -> tuple[str, str] | None:
        """Return the declaration that keeps two roles apart, as (role that declares it, role it names); None: none.

        It may be a declaration of, or about, an abstract role that one of the two provides.
        """
        for name, rival in ((first, second), (second, first)):
            for declarer in (name, *self.roles[name].provides):
                conflicts = self.roles[declarer].conflicts if declarer in self.roles else ()
                for conflict in conflicts:
                    is_declarer = name in self._with_providers_if_abstract(declarer)
                    if is_declarer and rival in self._with_providers_if_abstract(conflict):
                        return declarer, conflict
        return None

    @cached_property
    def _stand_ins(self) -> dict[str, frozenset[str]]:
        return _both_ways((name, other) for name, role in self.roles.items() for other in role.provides)

    def check(self) -> None:
        """Raise a conflict if roles need each other in a circle, or a jig's client role cannot be one."""
        self._check_client_roles()
        path = find_cycle(self._needed)
        if path:
            raise Conflict(Rule.CYCLE, f"These roles need each other in a circle: {' -> '.join(path)}.")

    def _check_client_roles(self) -> None:
        for jig in self.jigs.values():
            fault = self.client_role_fault(jig)
            if fault:
                raise Conflict(Rule.BARCLAMP, fault)

    def client_role_fault(self, jig: Jig) -> str | None:
        """Return why the client role of `jig` cannot be its client role; None if it can, or is not imported yet."""
        client = self.roles.get(jig.client_role) if jig.client_role else None
        if client is None:
            return None
        if not client.has(Flag.IMPLICIT):
            return f"Jig {jig.name!r} names {client.name!r} as its client role, which must have the flag implicit."
        if client.jig == jig.name:
            return f"Role {client.name!r} is the client role of jig {jig.name!r} and cannot itself use that jig."
        return None


def _both_ways(pairs: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    """Return, for each name in the pairs, all names that it is paired with."""
    partners: dict[str, set[str]] = {}
    for first, second in pairs:
        partners.setdefault(first, set()).add(second)
        partners.setdefault(second, set()).add(first)
    return {name: frozenset(others) for name, others in partners.items()}


def find_cycle(needed: Mapping[str, Iterable[str]]) -> list[str] | None:
    """Return the names along a circle of `needed`, with the first name again at the end; None if there is none.

    Iterative, because a chain of requires may be longer than Python's stack is deep.
    """
    done: set[str] = set()
    for start in sorted(needed):
        path: list[str] = []
        on_path: set[str] = set()
        stack: list[tuple[str, bool]] = [(start, True)]
        while stack:
            name, entering = stack.pop()
            if not entering:
                on_path.discard(path.pop())
                done.add(name)
                continue
            if name in on_path:
                return [*path[path.index(name) :], name]
            if name in done:
                continue
            path.append(name)
            on_path.add(name)
            stack.append((name, False))
            stack.extend((need, True) for need in needed.get(name, ()))
    return None
