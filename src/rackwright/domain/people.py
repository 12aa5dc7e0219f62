"""Who may do what, and where. Pure: whoever asks says in which deployments, and which lie above them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class UserRole(StrEnum):
    """What a person may do: each includes what the later ones may. `none`: only what grants in deployments give."""

    ADMIN = "admin"
    OPERATOR = "operator"
    VIEWER = "viewer"
    NONE = "none"


class Permission(StrEnum):
    """What a route asks of whoever calls it."""

    READ = "read"
    WRITE = "write"
    ADMINISTER = "administer"


class Scope(StrEnum):
    """The most that a token may do, whatever its owner may."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


_READ = frozenset({Permission.READ})
_WRITE = _READ | {Permission.WRITE}
_ALL = frozenset(Permission)

GRANTS: dict[UserRole, frozenset[Permission]] = {
    UserRole.ADMIN: _ALL,
    UserRole.OPERATOR: _WRITE,
    UserRole.VIEWER: _READ,
    UserRole.NONE: frozenset(),
}

SCOPES: dict[Scope, frozenset[Permission]] = {Scope.ADMIN: _ALL, Scope.WRITE: _WRITE, Scope.READ: _READ}


@dataclass(frozen=True)
class Principal:
    """Whoever is behind a request: a person, less what the token they came with leaves out."""

    name: str
    role: UserRole
    user_id: int = 0
    grants: Mapping[int, UserRole] = field(default_factory=dict)
    """Roles in deployments and all below them, by the deployment's id."""
    scope: Scope = Scope.ADMIN
    subtree: int | None = None
    """The deployment that the token is for; None: all of them."""
    token_id: int | None = None
    session_id: int | None = None

    def may(self, permission: Permission) -> bool:
        """Everywhere, in deployments that are still to come too."""
        return self.subtree is None and permission in GRANTS[self.role] & SCOPES[self.scope]

    def may_somewhere(self, permission: Permission) -> bool:
        """In one deployment at least; which, is for `may_in` to say."""
        roles = {self.role, *self.grants.values()}
        return permission in SCOPES[self.scope] and any(permission in GRANTS[role] for role in roles)

    def may_in(self, permission: Permission, lineage: Iterable[int]) -> bool:
        """In a deployment, given it and all those above it."""
        line = set(lineage)
        if permission not in SCOPES[self.scope] or (self.subtree is not None and self.subtree not in line):
            return False
        inherited = (role for deployment, role in self.grants.items() if deployment in line)
        return any(permission in GRANTS[role] for role in (self.role, *inherited))

    def covers(self, scope: Scope) -> bool:
        """Whether what this one came with allows to hand on such a scope."""
        return SCOPES[scope] <= SCOPES[self.scope]
