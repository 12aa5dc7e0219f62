"""Users and their grants. How they log in, with tokens and sessions, is in `tokens.py` and `sessions.py`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from rackwright.domain.errors import Conflict, NotFound, Rule
from rackwright.domain.names import check_name
from rackwright.domain.people import UserRole
from rackwright.store.db.listing import Column, Filter, Listing, key_id
from rackwright.store.db.locks import PEOPLE_LOCK
from rackwright.store.db.session import Session
from rackwright.store.events.outbox import emit
from rackwright.store.people.permission_changes import note_permission_change
from rackwright.store.people.sessions import end_sessions
from rackwright.store.people.tokens import NewToken, create_token


@dataclass(frozen=True)
class UserRecord:
    id: int
    name: str
    full_name: str
    role: UserRole
    disabled: bool
    created_at: datetime
    grants: Mapping[str, UserRole]
    """By the deployment's name."""


@dataclass(frozen=True)
class Credential:
    """The password hash that a login is checked against."""

    user_id: int
    password_hash: str


async def ensure_admin(session: Session, password_hash: str, name: str = "admin") -> str | None:
    """Create the first user, and return a token for the command line beside the server; None if there are users."""
    await _lock_people(session)
    if await session.value("SELECT 1 FROM users LIMIT 1"):
        return None
    user_id = await create_user(session, name, UserRole.ADMIN, password_hash)
    return (await create_token(session, NewToken(user_id, "first start")))[1]


USERS = Listing(
    "users",
    {
        "id": Column("u.id", Filter.NUMBER, sort="bigint"),
        "name": Column("u.name", sort="text"),
        "full_name": Column("u.full_name", sort="text"),
        "role": Column("u.role", Filter.CHOICE, choices={role.value: role.value for role in UserRole}, sort="text"),
        "disabled": Column("u.disabled", Filter.FLAG),
        "created_at": Column("u.created_at", Filter.TIME, sort="timestamptz"),
    },
    default="name",
    id="u.id",
)


async def create_user(session: Session, name: str, role: UserRole, password_hash: str = "", full_name: str = "") -> int:
    check_name("user", name)
    id: int | None = await session.value(
        "INSERT INTO users (name, role, password_hash, full_name) VALUES (:name, :role, :password_hash, :full_name)"
        " ON CONFLICT (name) DO NOTHING RETURNING id",
        name=name,
        role=role.value,
        password_hash=password_hash,
        full_name=full_name,
    )
    if id is None:
        raise Conflict(Rule.EXISTS, f"There is a user {name!r} already. Choose another name.")
    await emit(session, "user.created", id, data={"name": name, "role": role.value})
    return id


async def get_user(session: Session, name_or_id: str | int) -> UserRecord:
    records = await select_users(
        session, "WHERE u.name = :name OR u.id = :id", name=str(name_or_id), id=key_id(name_or_id)
    )
    if not records:
        raise NotFound("user", name_or_id)
    return records[0]


async def lock_user(session: Session, name_or_id: str | int) -> UserRecord:
    """Return the user, and keep other transactions from changing any user until this one ends, so that an admin
    always stays."""
    await _lock_people(session)
    return await get_user(session, name_or_id)


async def update_user(session: Session, user: UserRecord, role: UserRole, disabled: bool, full_name: str) -> None:
    """Change a user, who is locked. A permission that is taken away is gone at once."""
    if user.role is UserRole.ADMIN and (role is not UserRole.ADMIN or disabled):
        await _check_other_admin(session, user)
    await session.run(
        "UPDATE users SET role = :role, disabled = :disabled, full_name = :full_name WHERE id = :id",
        role=role.value,
        disabled=disabled,
        full_name=full_name,
        id=user.id,
    )
    note_permission_change(session)
    if disabled:
        await end_sessions(session, user.id)
    await emit(session, "user.updated", user.id, data={"name": user.name, "role": role.value, "disabled": disabled})


async def set_password(session: Session, user_id: int, name: str, password_hash: str) -> None:
    """Set a user's password, and end all sessions of the user: one of them may be why the password is new."""
    await session.run("UPDATE users SET password_hash = :hash WHERE id = :id", hash=password_hash, id=user_id)
    await emit(session, "user.password_changed", user_id, data={"name": name})
    await end_sessions(session, user_id)


async def delete_user(session: Session, user: UserRecord) -> None:
    """Delete a user, who is locked."""
    if user.role is UserRole.ADMIN:
        await _check_other_admin(session, user)
    note_permission_change(session)
    await end_sessions(session, user.id)
    await session.run("DELETE FROM users WHERE id = :id", id=user.id)
    await emit(session, "user.deleted", user.id, data={"name": user.name})


async def grant_role(session: Session, user: UserRecord, deployment_id: int, role: UserRole) -> None:
    """Give a user a role in a deployment and all below it."""
    note_permission_change(session)
    await session.run(
        "INSERT INTO grants (user_id, deployment_id, role) VALUES (:user_id, :deployment_id, :role)"
        " ON CONFLICT (user_id, deployment_id) DO UPDATE SET role = excluded.role",
        user_id=user.id,
        deployment_id=deployment_id,
        role=role.value,
    )
    data = {"user": user.name, "role": role.value}
    await emit(session, "grant.given", user.id, deployment_id=deployment_id, data=data)


async def revoke_grant(session: Session, user: UserRecord, deployment_id: int, deployment: str) -> None:
    note_permission_change(session)
    deleted = await session.run(
        "DELETE FROM grants WHERE user_id = :user_id AND deployment_id = :deployment_id",
        user_id=user.id,
        deployment_id=deployment_id,
    )
    if not deleted:
        raise NotFound("grant in deployment", deployment)
    await emit(session, "grant.taken", user.id, deployment_id=deployment_id, data={"user": user.name})


async def find_credential(session: Session, name: str) -> Credential | None:
    """Return the credential of a user who may log in with a password; None if there is no such user."""
    row = await session.row(
        "SELECT id, password_hash FROM users WHERE name = :name AND password_hash <> '' AND NOT disabled", name=name
    )
    return None if row is None else Credential(row.id, row.password_hash)


async def is_credential_current(session: Session, credential: Credential) -> bool:
    """Return whether a credential is still valid, and keep it so until the end of this transaction: to verify a
    password takes a while."""
    current = await session.value(
        "SELECT 1 FROM users WHERE id = :id AND password_hash = :hash AND NOT disabled FOR SHARE",
        id=credential.user_id,
        hash=credential.password_hash,
    )
    return current is not None


async def deployment_and_ancestors(session: Session, deployment_id: int) -> list[int]:
    """Return the ids of a deployment and all above it."""
    rows = await session.rows(
        "WITH RECURSIVE line (id, parent_id) AS ("
        " SELECT id, parent_id FROM deployments WHERE id = :id"
        " UNION ALL SELECT d.id, d.parent_id FROM line JOIN deployments d ON d.id = line.parent_id)"
        " SELECT id FROM line",
        id=deployment_id,
    )
    return [row.id for row in rows]


async def ancestors_by_deployment(session: Session) -> dict[int, frozenset[int]]:
    """Return, for every deployment, the ids of itself and all above it."""
    parents = {row.id: row.parent_id for row in await session.rows("SELECT id, parent_id FROM deployments")}
    lines: dict[int, frozenset[int]] = {}
    for start in parents:
        line: set[int] = set()
        deployment_id = start
        while deployment_id is not None:
            line.add(deployment_id)
            deployment_id = parents[deployment_id]
        lines[start] = frozenset(line)
    return lines


async def deployment_subtrees(session: Session, deployment_ids: list[int]) -> set[int]:
    """Return the ids of these deployments and all below them."""
    rows = await session.rows(
        "WITH RECURSIVE tree (id) AS ("
        " SELECT id FROM deployments WHERE id = ANY (:ids)"
        " UNION SELECT d.id FROM tree JOIN deployments d ON d.parent_id = tree.id)"
        " SELECT id FROM tree",
        ids=deployment_ids,
    )
    return {row.id for row in rows}


async def _lock_people(session: Session) -> None:
    """Take the lock for changes of users: two admins who demote each other at the same moment would leave none."""
    await session.run("SELECT pg_advisory_xact_lock(:lock)", lock=PEOPLE_LOCK)


async def _check_other_admin(session: Session, user: UserRecord) -> None:
    other = await session.value(
        "SELECT 1 FROM users WHERE role = 'admin' AND NOT disabled AND id <> :id LIMIT 1", id=user.id
    )
    if other is None:
        raise Conflict(
            Rule.LAST_ADMIN_USER,
            f"User {user.name!r} is the last admin. Make somebody else one first, or nobody could any more.",
        )


_SELECT = """
SELECT u.id, u.name, u.full_name, u.role, u.disabled, u.created_at,
       coalesce((SELECT jsonb_object_agg(d.name, g.role ORDER BY d.name) FROM grants g
                 JOIN deployments d ON d.id = g.deployment_id WHERE g.user_id = u.id), '{}') AS grants
FROM users u
"""


async def select_users(session: Session, where: str, **values: object) -> list[UserRecord]:
    return [
        UserRecord(
            row.id,
            row.name,
            row.full_name,
            UserRole(row.role),
            row.disabled,
            row.created_at,
            {deployment: UserRole(role) for deployment, role in row.grants.items()},
        )
        for row in await session.rows(f"{_SELECT} {where}", **values)
    ]
