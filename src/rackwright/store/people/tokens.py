"""API tokens. A token is shown once and stored as a hash; its scope and its subtree limit what it may do."""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime

from rackwright.domain.errors import Invalid, NotFound
from rackwright.domain.people import Principal, Scope, UserRole
from rackwright.store.db.listing import Column, Filter, Listing
from rackwright.store.db.session import Session
from rackwright.store.events.outbox import emit
from rackwright.store.people.permission_changes import note_permission_change

TOKEN_PREFIX = "rw_"  # noqa: S105  # no secret itself: it marks a text as a token

GRANTS_SQL = (
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


def hash_secret(secret: str) -> bytes:
    """Return the hash that is stored of a secret of 256 random bits.

    The secret cannot be guessed from it; the hash only hides it from a reader of the table.
    """
    return hashlib.sha256(secret.encode()).digest()


async def create_token(session: Session, new: NewToken) -> tuple[int, str]:
    """Create a token, and return its id and the token itself, which nobody can look up later."""
    if new.expires_at is not None and await session.value("SELECT :at <= now()", at=new.expires_at):
        raise Invalid("The token would have expired already; give a time to come.", "/expires_at")
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    id: int = await session.value(
        "INSERT INTO tokens (user_id, name, hash, scope, deployment_id, expires_at)"
        " VALUES (:user_id, :name, :hash, :scope, :deployment_id, :expires_at) RETURNING id",
        user_id=new.user_id,
        name=new.name,
        hash=hash_secret(token),
        scope=new.scope.value,
        deployment_id=new.deployment_id,
        expires_at=new.expires_at,
    )
    await emit(session, "token.created", id, data={"name": new.name, "scope": new.scope.value})
    return id, token


async def find_token_principal(session: Session, token: str) -> Principal | None:
    """Return whose token this is; None if there is no such token, or it has expired."""
    row = await session.row(
        f"SELECT u.id, u.name, u.role, t.id AS token_id, t.scope, t.deployment_id, {GRANTS_SQL} AS grants"
        " FROM tokens t JOIN users u ON u.id = t.user_id"
        " WHERE t.hash = :hash AND (t.expires_at IS NULL OR t.expires_at > now()) AND NOT u.disabled",
        hash=hash_secret(token),
    )
    if row is None:
        return None
    return Principal(
        row.name,
        UserRole(row.role),
        row.id,
        {int(deployment): UserRole(role) for deployment, role in row.grants.items()},
        Scope(row.scope),
        row.deployment_id,
        token_id=row.token_id,
    )


async def mark_token_used(session: Session, token_id: int) -> None:
    """Note that a token was used, to the minute: nobody needs it finer, and a read should seldom mean a write."""
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
    records = await select_tokens(session, "WHERE t.id = :id", id=id)
    if not records:
        raise NotFound("token", id)
    return records[0]


async def check_token_lifetime(session: Session, token_id: int, expires_at: datetime | None) -> None:
    """Refuse a token that would be valid for longer than the one it is made with: else a stolen one never expires."""
    own_end = (await get_token(session, token_id)).expires_at
    if own_end is not None and (expires_at is None or expires_at > own_end):
        raise Invalid(
            f"Your own token expires at {own_end.isoformat()}, and cannot make one that holds for longer. "
            "Give an earlier time, or log in.",
            "/expires_at",
        )


async def revoke_token(session: Session, id: int) -> None:
    note_permission_change(session)
    name = await session.value("DELETE FROM tokens WHERE id = :id RETURNING name", id=id)
    await emit(session, "token.revoked", id, data={"name": name})


_SELECT = """
SELECT t.id, u.name AS "user", t.name, t.scope, d.name AS deployment, t.created_at, t.expires_at, t.last_used_at
FROM tokens t JOIN users u ON u.id = t.user_id LEFT JOIN deployments d ON d.id = t.deployment_id
"""
