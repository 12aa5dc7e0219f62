"""Who may do what."""

from dataclasses import dataclass
from enum import StrEnum


class UserRole(StrEnum):
    """What a person may do: each includes what the later ones may."""

    ADMIN = "admin"
    OPERATOR = "operator"
    VIEWER = "viewer"


class Permission(StrEnum):
    """What a route asks of whoever calls it."""

    READ = "read"
    WRITE = "write"
    ADMINISTER = "administer"


GRANTS: dict[UserRole, frozenset[Permission]] = {
    UserRole.ADMIN: frozenset(Permission),
    UserRole.OPERATOR: frozenset({Permission.READ, Permission.WRITE}),
    UserRole.VIEWER: frozenset({Permission.READ}),
}


@dataclass(frozen=True)
class Principal:
    """Whoever is behind a request."""

    name: str
    role: UserRole

    def may(self, permission: Permission) -> bool:
        return permission in GRANTS[self.role]
