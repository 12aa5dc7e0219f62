"""/api/v2/users: users, for administrators; and users' roles in deployments, which a subtree's admin may give."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from rackwright.api.auth.passwords import check_password
from rackwright.api.context import Administrator, Caller, Writer
from rackwright.api.http.answers import Fields, Page, Resource, answer
from rackwright.api.http.etags import make_etag
from rackwright.api.http.paging import ListQuery, list_parameters, read_page
from rackwright.api.http.patching import patch_body, read_patch
from rackwright.api.http.types import Key, Name
from rackwright.api.http.writing import EditTerms, Terms, write
from rackwright.domain.people import Permission, UserRole
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph.deployments import get_deployment, select_deployments
from rackwright.store.people import users
from rackwright.store.people.users import USERS, UserRecord, lock_user, select_users

router = APIRouter(prefix="/users", tags=["people"])

Password = Annotated[str, Field(max_length=256)]


class UserIn(BaseModel):
    """Without a password the user can use tokens only."""

    model_config = ConfigDict(extra="forbid")

    name: Name = Field(examples=["grace"])
    full_name: str = Field("", max_length=200)
    role: UserRole = Field(UserRole.VIEWER, description="Everywhere. `none`: only what grants in deployments give.")
    password: Password | None = None


class UserEdit(BaseModel):
    """What administrators change of a user."""

    model_config = ConfigDict(extra="forbid")

    full_name: str = Field(max_length=200)
    role: UserRole
    disabled: bool


class PasswordIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    password: Password


class GrantIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    role: Literal[UserRole.ADMIN, UserRole.OPERATOR, UserRole.VIEWER]


class UserOut(Resource):
    """A person, or a program that acts as one."""

    id: int
    name: str
    full_name: str
    role: UserRole
    disabled: bool
    created_at: datetime
    grants: dict[str, UserRole] = Field(description="Roles in deployments and all below them.")

    @classmethod
    def of(cls, user: UserRecord) -> "UserOut":
        grants = dict(user.grants)
        etag = make_etag(user.id, user.name, user.full_name, user.role, user.disabled, grants)
        return cls(etag=etag, **{**vars(user), "grants": grants})


@router.get("", response_model=Page[UserOut])
async def list_users(caller: Administrator, query: Annotated[ListQuery, Depends(list_parameters(USERS))]) -> Response:
    """All users, or those that fit."""
    async with caller.server.store.read() as session:
        return await read_page(session, EVERYTHING, query, select_users, UserOut, UserOut.of)


@router.post("", status_code=201, response_model=UserOut)
async def create_user(caller: Administrator, body: UserIn) -> Response:
    """A new user."""
    hashed = ""
    if body.password is not None:
        check_password(body.password, body.name)
        hashed = await caller.server.passwords.hash(body.password)

    async def work(session: Session) -> UserOut:
        id = await users.create_user(session, body.name, body.role, hashed, body.full_name)
        return UserOut.of(await users.get_user(session, id))

    # No Idempotency-Key: a hash of the request, which has the password, would be kept with the answer.
    return await write(caller, Terms(), work, status=201, location=lambda _: f"/api/v2/users/{body.name}")


@router.get("/{user}", response_model=UserOut)
async def show_user(caller: Administrator, user: Key, fields: Fields) -> Response:
    """One user."""
    async with caller.server.store.read() as session:
        return answer(UserOut.of(await users.get_user(session, user)), fields=fields)


@router.patch("/{user}", response_model=UserOut, openapi_extra=patch_body(UserEdit, {"role": "operator"}))
async def update_user(caller: Administrator, terms: EditTerms, user: Key, request: Request) -> Response:
    """Change name, role, or whether the user is let in at all. It counts for the next request."""
    patch = await read_patch(request)

    async def work(session: Session) -> UserOut:
        record = await lock_user(session, user)
        terms.check(UserOut.of(record), f"user {record.name}")
        edit = patch.apply(UserEdit(full_name=record.full_name, role=record.role, disabled=record.disabled))
        await users.update_user(session, record, edit.role, edit.disabled, edit.full_name)
        return UserOut.of(await users.get_user(session, record.id))

    return await write(caller, terms, work)


@router.delete("/{user}", status_code=204)
async def delete_user(caller: Administrator, terms: EditTerms, user: Key) -> Response:
    """With all the user's tokens and sessions."""

    async def work(session: Session) -> None:
        record = await lock_user(session, user)
        terms.check(UserOut.of(record), f"user {record.name}")
        await users.delete_user(session, record)

    return await write(caller, terms, work)


@router.put("/{user}/password", status_code=204)
async def set_user_password(caller: Administrator, user: Key, body: PasswordIn) -> Response:
    """Give a user a new password; all their sessions end."""
    async with caller.server.store.read() as session:
        record = await users.get_user(session, user)
    check_password(body.password, record.name)
    hashed = await caller.server.passwords.hash(body.password)

    async def work(session: Session) -> None:
        await users.set_password(session, record.id, record.name, hashed)

    return await write(caller, Terms(), work)


async def _user_out(session: Session, caller: Caller, user: UserRecord) -> UserOut:
    """Return the user with the grants that the caller may see: a deployment's administrator learns of no others."""
    user_out, visible = UserOut.of(user), (await caller.visibility(session)).deployments()
    if visible is None:
        return user_out
    names = {
        deployment.name for deployment in await select_deployments(session, "WHERE d.id = ANY (:ids)", ids=visible)
    }
    return user_out.model_copy(
        update={"grants": {name: role for name, role in user_out.grants.items() if name in names}}
    )


@router.put("/{user}/grants/{deployment}", response_model=UserOut)
async def grant_role(caller: Writer, terms: EditTerms, user: Key, deployment: Key, body: GrantIn) -> Response:
    """Give a user a role in a deployment and all below it."""

    async def work(session: Session) -> UserOut:
        target = await get_deployment(session, deployment, EVERYTHING)
        await caller.authorize(session, target.id, Permission.ADMINISTER)
        record = await lock_user(session, user)
        terms.check(UserOut.of(record), f"user {record.name}")
        await users.grant_role(session, record, target.id, body.role)
        return await _user_out(session, caller, await users.get_user(session, record.id))

    return await write(caller, terms, work)


@router.delete("/{user}/grants/{deployment}", response_model=UserOut)
async def revoke_role(caller: Writer, terms: EditTerms, user: Key, deployment: Key) -> Response:
    """Take back a role in a deployment."""

    async def work(session: Session) -> UserOut:
        target = await get_deployment(session, deployment, EVERYTHING)
        await caller.authorize(session, target.id, Permission.ADMINISTER)
        record = await lock_user(session, user)
        terms.check(UserOut.of(record), f"user {record.name}")
        await users.revoke_grant(session, record, target.id, target.name)
        return await _user_out(session, caller, await users.get_user(session, record.id))

    return await write(caller, terms, work)
