"""/api/v2/me: who the caller is, what the caller may do, and the caller's own password."""

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from rackwright.api.auth.authentication import csrf_token
from rackwright.api.auth.cookies import COOKIE
from rackwright.api.auth.limits import source_of
from rackwright.api.auth.passwords import check_password
from rackwright.api.context import Person
from rackwright.api.routes.people.sessions import WrongLogin
from rackwright.domain.people import Permission, Scope, UserRole
from rackwright.store.people.users import find_credential, get_user, set_password

router = APIRouter(prefix="/me", tags=["people"])


class MeOut(BaseModel):
    """`permissions` hold everywhere; `grants` are roles in deployments and all below them."""

    id: int
    name: str
    full_name: str
    role: UserRole
    permissions: list[Permission]
    grants: dict[str, UserRole]
    scope: Scope
    token_id: int | None
    session_id: int | None
    csrf: str | None = Field(description="For X-CSRF-Token, when you came with a session's cookie.")


class NewPasswordIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    current: str = Field(max_length=256)
    password: str = Field(max_length=256)


@router.get("")
async def get_me(request: Request, caller: Person) -> MeOut:
    """Who one is, and what one may do."""
    principal = caller.principal
    async with caller.server.store.read() as session:
        user = await get_user(session, principal.user_id)
    return MeOut(
        id=user.id,
        name=user.name,
        full_name=user.full_name,
        role=principal.role,
        permissions=[permission for permission in Permission if principal.may(permission)],
        grants=dict(user.grants),
        scope=principal.scope,
        token_id=principal.token_id,
        session_id=principal.session_id,
        csrf=None if principal.session_id is None else csrf_token(request.cookies[COOKIE]),
    )


@router.put("/password", status_code=204)
async def change_password(request: Request, caller: Person, body: NewPasswordIn) -> None:
    """Ends all your sessions. Log in again with the new one."""
    caller.require_unlimited_credentials()
    server, name, source = caller.server, caller.principal.name, source_of(request)
    check_password(body.password, name)
    server.passwords.count_attempt(name, source)
    async with server.store.read() as session:
        credential = await find_credential(session, name)
    if not await server.passwords.verify(credential.password_hash if credential else None, body.current):
        raise WrongLogin("The current password is wrong.")
    server.passwords.count_success(name, source)
    hashed = await server.passwords.hash(body.password)
    user_id = caller.principal.user_id
    await server.store.change(lambda session: set_password(session, user_id, name, hashed), actor=name)
