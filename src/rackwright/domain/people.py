"""Permissions: what the roles of users, their grants in deployments and the scopes of tokens allow.

Pure: the caller passes the deployments that a request concerns, and those above them.
"""

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
    """The person who sent a request, with the limits of the token that was used."""

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
        """Return whether the permission holds everywhere, also in deployments that do not exist yet."""
        return self.subtree is None and permission in GRANTS[self.role] & SCOPES[self.scope]

    def may_somewhere(self, permission: Permission) -> bool:
        """Return whether the permission holds in one deployment at least; `may_in` tells for a certain deployment."""
        roles = {self.role, *self.grants.values()}
        return permission in SCOPES[self.scope] and any(permission in GRANTS[role] for role in roles)

    def may_in(self, permission: Permission, lineage: Iterable[int]) -> bool:
        """Return whether the permission holds in a deployment; `lineage` is that deployment and all those above it."""
        deployments = set(lineage)
        if permission not in SCOPES[self.scope] or (self.subtree is not None and self.subtree not in deployments):
            return False
        inherited = (role for deployment, role in self.grants.items() if deployment in deployments)
        return any(permission in GRANTS[role] for role in (self.role, *inherited))

    def covers(self, scope: Scope) -> bool:
        """Return whether the scope of the request is wide enough to hand on `scope`, as for a new token."""
        return SCOPES[scope] <= SCOPES[self.scope]
