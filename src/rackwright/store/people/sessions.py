"""Sessions of people in a browser: stored as a hash, ended by idling, by age, by logout and by a new password."""

import secrets
from dataclasses import dataclass
from datetime import datetime

from rackwright.domain.errors import NotFound
from rackwright.domain.people import Principal, UserRole
from rackwright.store.db.session import Session
from rackwright.store.events.outbox import emit
from rackwright.store.people.permission_changes import note_permission_change
from rackwright.store.people.tokens import GRANTS_SQL, hash_secret


@dataclass(frozen=True)
class Lifetime:
    """After how many seconds a session ends: without a request (`idle`), and in any case (`absolute`)."""

    idle: float = 12 * 3600.0
    absolute: float = 7 * 86400.0


@dataclass(frozen=True)
class SessionRecord:
    id: int
    address: str
    agent: str
    created_at: datetime
    seen_at: datetime
    expires_at: datetime


async def open_session(session: Session, user_id: int, lifetime: Lifetime, address: str, agent: str) -> tuple[int, str]:
    """Open a session of a user, and return its id and the secret for the cookie."""
    await session.run("DELETE FROM sessions WHERE expires_at < now()")
    secret = secrets.token_urlsafe(32)
    id: int = await session.value(
        "INSERT INTO sessions (user_id, hash, address, agent, expires_at) VALUES"
        " (:user_id, :hash, :address, :agent, now() + :absolute * interval '1 second') RETURNING id",
        user_id=user_id,
        hash=hash_secret(secret),
        address=address,
        agent=agent[:200],
        absolute=lifetime.absolute,
    )
    await emit(session, "session.created", id, data={"address": address})
    return id, secret


async def find_session_principal(session: Session, secret: str, lifetime: Lifetime) -> Principal | None:
    """Return who has the session with this secret; None if there is none, or it is over."""
    row = await session.row(
        f"SELECT u.id, u.name, u.role, s.id AS session_id, {GRANTS_SQL} AS grants"
        " FROM sessions s JOIN users u ON u.id = s.user_id WHERE s.hash = :hash AND s.expires_at > now()"
        " AND s.seen_at > now() - :idle * interval '1 second' AND NOT u.disabled",
        hash=hash_secret(secret),
        idle=lifetime.idle,
    )
    if row is None:
        return None
    grants = {int(deployment): UserRole(role) for deployment, role in row.grants.items()}
    return Principal(row.name, UserRole(row.role), row.id, grants, session_id=row.session_id)


async def mark_session_seen(session: Session, session_id: int) -> None:
    await session.run("UPDATE sessions SET seen_at = now() WHERE id = :id", id=session_id)


async def list_sessions(session: Session, user_id: int) -> list[SessionRecord]:
    rows = await session.rows(
        "SELECT id, address, agent, created_at, seen_at, expires_at FROM sessions WHERE user_id = :user_id ORDER BY id",
        user_id=user_id,
    )
    return [SessionRecord(**row._mapping) for row in rows]


async def end_session(session: Session, user_id: int, id: int) -> None:
    """End one session of this user."""
    note_permission_change(session)
    if not await session.run("DELETE FROM sessions WHERE id = :id AND user_id = :user_id", id=id, user_id=user_id):
        raise NotFound("session", id)
    await emit(session, "session.ended", id)


async def end_sessions(session: Session, user_id: int) -> None:
    """End all sessions of a user."""
    note_permission_change(session)
    rows = await session.rows("DELETE FROM sessions WHERE user_id = :user_id RETURNING id", user_id=user_id)
    for row in rows:
        await emit(session, "session.ended", row.id)
