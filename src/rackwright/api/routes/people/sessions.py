"""/api/v2/sessions: logging in and out. The cookie is for browsers; all other programs use a token."""

import asyncio
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from rackwright.api.auth.authentication import check_origin, csrf_token
from rackwright.api.auth.cookies import COOKIE
from rackwright.api.auth.limits import Source
from rackwright.api.context import Caller, Person, Server, Unauthenticated
from rackwright.store.db.session import Session
from rackwright.store.events.outbox import emit
from rackwright.store.people.sessions import end_session, list_sessions, open_session
from rackwright.store.people.users import Credential, find_credential, is_credential_current

router = APIRouter(prefix="/sessions", tags=["people"])


class LoginIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=63, examples=["admin"])
    password: str = Field(max_length=256)


class LoginOut(BaseModel):
    """Send `csrf` as X-CSRF-Token with everything that is not a GET."""

    id: int
    name: str
    csrf: str


class SessionOut(BaseModel):
    id: int
    address: str
    agent: str
    created_at: datetime
    seen_at: datetime
    expires_at: datetime
    current: bool


class SessionsOut(BaseModel):
    items: list[SessionOut]
    next: str | None = None


class WrongLogin(Unauthenticated):
    """Name or password is wrong."""

    type = "wrong-login"


@router.post("", status_code=201)
async def login(request: Request, response: Response, source: Source, body: LoginIn) -> LoginOut:
    """Log in: the answer sets the session's cookie."""
    check_origin(request)
    server: Server = request.app.state.server
    server.passwords.count_attempt(body.name, source)
    credential = await _check_login(server, body, source)
    server.passwords.count_success(body.name, source)
    agent = request.headers.get("user-agent", "")
    lifetime = server.policy.sessions

    async def work(session: Session) -> tuple[int, str]:
        if not await is_credential_current(session, credential):
            raise WrongLogin
        return await open_session(session, credential.user_id, lifetime, source, agent)

    id, secret = await server.store.change(work, actor=body.name)
    response.set_cookie(
        COOKIE,
        secret,
        max_age=int(lifetime.absolute),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return LoginOut(id=id, name=body.name, csrf=csrf_token(secret))


async def _check_login(server: Server, body: LoginIn, source: str) -> Credential:
    """Return the user's credential, if the password is right; else record the failure and refuse, after a delay."""
    async with server.store.read() as session:
        credential = await find_credential(session, body.name)
    if await server.passwords.verify(credential.password_hash if credential else None, body.password) and credential:
        return credential
    # A name nobody has is not written down: people type passwords into the wrong field.
    name = body.name if credential else "unknown"
    await server.store.change(
        lambda session: emit(session, "login.failed", data={"name": name, "address": source}), actor=f"login {source}"
    )
    await asyncio.sleep(server.passwords.delay_after_failure(name))
    raise WrongLogin


@router.get("")
async def list_logins(caller: Person) -> SessionsOut:
    """Where you are logged in."""
    async with caller.server.store.read() as session:
        sessions = await list_sessions(session, caller.principal.user_id)
    return SessionsOut(
        items=[SessionOut(**vars(login), current=login.id == caller.principal.session_id) for login in sessions]
    )


@router.delete("/current", status_code=204)
async def logout(caller: Person, response: Response) -> None:
    """Log out."""
    if caller.principal.session_id is None:
        raise Unauthenticated("You came with a token; there is no session to end.")
    await _end_session(caller, caller.principal.session_id)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")


@router.delete("/{id}", status_code=204)
async def end_login(caller: Person, id: Annotated[int, Field(ge=1, lt=2**63)]) -> None:
    """Log out elsewhere."""
    caller.require_unlimited_credentials()
    await _end_session(caller, id)


async def _end_session(caller: Caller, id: int) -> None:
    principal = caller.principal
    await caller.server.store.change(lambda session: end_session(session, principal.user_id, id), actor=principal.name)
