"""Users and their tokens. A token is shown once and stored as a hash."""

import hashlib
import secrets

from rackwright.domain.people import Principal, UserRole
from rackwright.store.session import Session

TOKEN_PREFIX = "rw_"  # noqa: S105  # no secret: it marks what is one


async def ensure_admin(session: Session, name: str = "admin") -> str | None:
    """The first user, with a token; None if there is one already."""
    if await session.value("SELECT 1 FROM users LIMIT 1"):
        return None
    user_id = await session.value(
        "INSERT INTO users (name, role) VALUES (:name, :role) RETURNING id", name=name, role=UserRole.ADMIN.value
    )
    return await create_token(session, user_id, "first start")


async def create_token(session: Session, user_id: int, name: str) -> str:
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    await session.run(
        "INSERT INTO tokens (user_id, name, hash) VALUES (:user_id, :name, :hash)",
        user_id=user_id,
        name=name,
        hash=_hash(token),
    )
    return token


async def find_principal(session: Session, token: str) -> Principal | None:
    """Whose token this is, unless it has expired."""
    found = await session.row(
        "SELECT u.name, u.role FROM tokens t JOIN users u ON u.id = t.user_id"
        " WHERE t.hash = :hash AND (t.expires_at IS NULL OR t.expires_at > now())",
        hash=_hash(token),
    )
    return None if found is None else Principal(found.name, UserRole(found.role))


def _hash(token: str) -> bytes:
    # The token is 256 random bits, so a plain hash cannot be guessed back; it only hides it from a reader of the table.
    return hashlib.sha256(token.encode()).digest()
