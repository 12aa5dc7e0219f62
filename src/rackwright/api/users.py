"""/api/v2/users: for administrators; and the roles of users in deployments, which a subtree's own admin may give."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from rackwright.api.context import Administrator, Writer
from rackwright.api.passwords import check_password
from rackwright.domain.people import Permission, UserRole
from rackwright.store import people
from rackwright.store.deployments import get_deployment
from rackwright.store.people import UserRecord, get_user
from rackwright.store.session import Session

router = APIRouter(prefix="/users", tags=["people"])

Password = Annotated[str, Field(max_length=256)]


class UserIn(BaseModel):
    """Without a password the user can use tokens only."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=63, examples=["grace"])
    full_name: str = Field("", max_length=200)
    role: UserRole = Field(UserRole.VIEWER, description="Everywhere. `none`: only what grants in deployments give.")
    password: Password | None = None


class UserChange(BaseModel):
    model_config = ConfigDict(extra="forbid")

    full_name: str | None = Field(None, max_length=200)
    role: UserRole | None = None
    disabled: bool | None = None


class PasswordIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    password: Password


class GrantIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    role: Literal[UserRole.ADMIN, UserRole.OPERATOR, UserRole.VIEWER]


class UserOut(BaseModel):
    id: int
    name: str
    full_name: str
    role: UserRole
    disabled: bool
    created_at: datetime
    grants: dict[str, UserRole]

    @classmethod
    def of(cls, user: UserRecord) -> "UserOut":
        return cls(**{**vars(user), "grants": dict(user.grants)})


class UsersOut(BaseModel):
    items: list[UserOut]
    next: str | None = None


@router.get("")
async def list_users(caller: Administrator) -> UsersOut:
    """All users."""
    async with caller.server.store.read() as session:
        return UsersOut(items=[UserOut.of(user) for user in await people.list_users(session)])


@router.post("", status_code=201)
async def create_user(caller: Administrator, body: UserIn) -> UserOut:
    """A new user."""
    hashed = ""
    if body.password is not None:
        check_password(body.password, body.name)
        hashed = await caller.server.passwords.hash(body.password)

    async def work(session: Session) -> UserOut:
        await people.create_user(session, body.name, body.role, hashed, body.full_name)
        return UserOut.of(await get_user(session, body.name))

    return await caller.change(work)


@router.get("/{user}")
async def show_user(caller: Administrator, user: str) -> UserOut:
    """One user."""
    async with caller.server.store.read() as session:
        return UserOut.of(await get_user(session, user))


@router.patch("/{user}")
async def update_user(caller: Administrator, user: str, body: UserChange) -> UserOut:
    """Change a user: the full name, the role, or whether it may log in."""
    """A field that is left out stays as it is."""

    async def work(session: Session) -> UserOut:
        id = await people.update_user(session, user, people.UserChange(body.role, body.disabled, body.full_name))
        return UserOut.of(await get_user(session, id))

    return await caller.change(work)


@router.delete("/{user}", status_code=204)
async def delete_user(caller: Administrator, user: str) -> None:
    """Take a user out, with its tokens and sessions."""
    await caller.change(lambda session: people.delete_user(session, user))


@router.put("/{user}/password", status_code=204)
async def set_user_password(caller: Administrator, user: str, body: PasswordIn) -> None:
    """Give a user a new password; all their sessions end."""
    async with caller.server.store.read() as session:
        found = await get_user(session, user)
    check_password(body.password, found.name)
    hashed = await caller.server.passwords.hash(body.password)
    await caller.change(lambda session: people.set_password(session, found.id, found.name, hashed))


@router.put("/{user}/grants/{deployment}")
async def grant_role(caller: Writer, user: str, deployment: str, body: GrantIn) -> UserOut:
    """Give a user a role in a deployment and all below it."""

    async def work(session: Session) -> UserOut:
        place = await get_deployment(session, deployment)
        await caller.authorize(session, place.id, Permission.ADMINISTER)
        await people.grant(session, await get_user(session, user), place.id, body.role)
        return UserOut.of(await get_user(session, user))

    return await caller.change(work)


@router.delete("/{user}/grants/{deployment}", status_code=204)
async def revoke_role(caller: Writer, user: str, deployment: str) -> None:
    """Take a role in a deployment back."""

    async def work(session: Session) -> None:
        place = await get_deployment(session, deployment)
        await caller.authorize(session, place.id, Permission.ADMINISTER)
        await people.take_back(session, await get_user(session, user), place.id, place.name)

    await caller.change(work)
