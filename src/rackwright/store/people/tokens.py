"""API tokens. One is shown once and stored as a hash; it does no more than its scope and its subtree say."""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime

from rackwright.domain.errors import Invalid, NotFound
from rackwright.domain.people import Principal, Scope, UserRole
from rackwright.store.db.listing import Column, Filter, Listing
from rackwright.store.db.session import Session
from rackwright.store.events.outbox import emit
from rackwright.store.people.people_version import people_changed

TOKEN_PREFIX = "rw_"  # noqa: S105  # no secret: it marks what is one

GRANTS_OF = (
    """coalesce((SELECT jsonb_object_agg(g.deployment_id, g.role) FROM grants g WHERE g.user_id = u.id), '{}')"""
)


@dataclass(frozen=True)
class NewToken:
    user_id: int
    name: str
    scope: Scope = Scope.ADMIN
    deployment_id: int | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True)
class TokenRecord:
    id: int
    user: str
    name: str
    scope: Scope
    deployment: str | None
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None


def fingerprint(secret: str) -> bytes:
    """What is stored of 256 random bits: nobody guesses back from it; it only hides them from a reader of the table."""
    return hashlib.sha256(secret.encode()).digest()


async def create_token(session: Session, new: NewToken) -> tuple[int, str]:
    """Its id, and the token itself, which nobody can look up later."""
    if new.expires_at is not None and await session.value("SELECT :at <= now()", at=new.expires_at):
        raise Invalid("The token would have expired already; give a time to come.", "/expires_at")
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    id: int = await session.value(
        "INSERT INTO tokens (user_id, name, hash, scope, deployment_id, expires_at)"
        " VALUES (:user_id, :name, :hash, :scope, :deployment_id, :expires_at) RETURNING id",
        user_id=new.user_id,
        name=new.name,
        hash=fingerprint(token),
        scope=new.scope.value,
        deployment_id=new.deployment_id,
        expires_at=new.expires_at,
    )
    await emit(session, "token.created", id, data={"name": new.name, "scope": new.scope.value})
    return id, token


async def find_principal(session: Session, token: str) -> Principal | None:
    """Whose token this is, unless it has expired."""
    found = await session.row(
        f"SELECT u.id, u.name, u.role, t.id AS token_id, t.scope, t.deployment_id, {GRANTS_OF} AS grants"
        " FROM tokens t JOIN users u ON u.id = t.user_id"
        " WHERE t.hash = :hash AND (t.expires_at IS NULL OR t.expires_at > now()) AND NOT u.disabled",
        hash=fingerprint(token),
    )
    if found is None:
        return None
    return Principal(
        found.name,
        UserRole(found.role),
        found.id,
        {int(deployment): UserRole(role) for deployment, role in found.grants.items()},
        Scope(found.scope),
        found.deployment_id,
        token_id=found.token_id,
    )


async def mark_used(session: Session, token_id: int) -> None:
    """To the minute: nobody needs it finer, and reading should not mean writing."""
    await session.run(
        "UPDATE tokens SET last_used_at = now() WHERE id = :id"
        " AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')",
        id=token_id,
    )


TOKENS = Listing(
    "tokens",
    {
        "id": Column("t.id", Filter.NUMBER, sort="bigint"),
        "name": Column("t.name", sort="text"),
        "scope": Column("t.scope", Filter.CHOICE, choices={scope.value: scope.value for scope in Scope}, sort="text"),
        "created_at": Column("t.created_at", Filter.TIME, sort="timestamptz"),
        "expires_at": Column("t.expires_at", Filter.TIME),
    },
    default="id",
    id="t.id",
)


async def select_tokens(session: Session, where: str, **values: object) -> list[TokenRecord]:
    rows = await session.rows(f"{_SELECT} {where}", **values)
    return [TokenRecord(**{**row._mapping, "scope": Scope(row.scope)}) for row in rows]


async def get_token(session: Session, id: int) -> TokenRecord:
    found = await select_tokens(session, "WHERE t.id = :id", id=id)
    if not found:
        raise NotFound("token", id)
    return found[0]


async def check_outlived_by(session: Session, token_id: int, expires_at: datetime | None) -> None:
    """Refuse a token that would hold for longer than the one it is made with: else a stolen one never expires."""
    own = (await get_token(session, token_id)).expires_at
    if own is not None and (expires_at is None or expires_at > own):
        raise Invalid(
            f"Your own token expires at {own.isoformat()}, and cannot make one that holds for longer. Give an earlier "
            "time, or log in.",
            "/expires_at",
        )


async def revoke_token(session: Session, id: int) -> None:
    people_changed(session)
    name = await session.value("DELETE FROM tokens WHERE id = :id RETURNING name", id=id)
    await emit(session, "token.revoked", id, data={"name": name})


_SELECT = """
SELECT t.id, u.name AS "user", t.name, t.scope, d.name AS deployment, t.created_at, t.expires_at, t.last_used_at
FROM tokens t JOIN users u ON u.id = t.user_id LEFT JOIN deployments d ON d.id = t.deployment_id
"""
