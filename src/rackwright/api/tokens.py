"""/api/v2/tokens: one's own; administrators see and revoke everybody's, and make them for users without a password."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from rackwright.api.context import Forbidden, Person
from rackwright.domain.errors import NotFound
from rackwright.domain.people import Permission, Scope
from rackwright.store import tokens
from rackwright.store.deployments import get_deployment
from rackwright.store.people import get_user
from rackwright.store.session import Session
from rackwright.store.tokens import NewToken, TokenRecord

router = APIRouter(prefix="/tokens", tags=["people"])

Id = Annotated[int, Field(ge=1, lt=2**63)]


class TokenIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=100, examples=["backup script"])
    scope: Scope = Field(Scope.READ, description="The most it may do, whatever its owner may.")
    deployment: str | None = Field(None, description="Only in this deployment and below it.")
    expires_at: AwareDatetime | None = None
    user: str | None = Field(None, description="Whose it is; only administrators make tokens for others.")


class TokenOut(BaseModel):
    id: int
    user: str
    name: str
    scope: Scope
    deployment: str | None
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None

    @classmethod
    def of(cls, token: TokenRecord) -> "TokenOut":
        return cls(**vars(token))


class NewTokenOut(TokenOut):
    token: str = Field(description="Shown this once.")


class TokensOut(BaseModel):
    items: list[TokenOut]
    next: str | None = None


@router.get("")
async def list_tokens(caller: Person, user: str | None = None) -> TokensOut:
    """Your tokens; another user's, for administrators."""
    async with caller.server.store.read() as session:
        user_id = caller.principal.user_id
        if user is not None and (found := await get_user(session, user)).id != user_id:
            caller.require(Permission.ADMINISTER)
            user_id = found.id
        return TokensOut(items=[TokenOut.of(token) for token in await tokens.list_tokens(session, user_id)])


@router.post("", status_code=201)
async def issue_token(caller: Person, body: TokenIn) -> NewTokenOut:
    """Make a token. It is shown in this answer and never again."""
    caller.own()
    if not caller.principal.covers(body.scope):
        raise Forbidden(f"Your token is of scope {caller.principal.scope}; it cannot make one of scope {body.scope}.")

    async def work(session: Session) -> NewTokenOut:
        owner = caller.principal.user_id
        if body.user is not None and body.user != caller.principal.name:
            caller.require(Permission.ADMINISTER)
            owner = (await get_user(session, body.user)).id
        place = None if body.deployment is None else (await get_deployment(session, body.deployment)).id
        new = NewToken(owner, body.name, body.scope, place, body.expires_at)
        id, token = await tokens.create_token(session, new)
        return NewTokenOut(**vars(await tokens.get_token(session, id)), token=token)

    return await caller.server.store.change(work, actor=caller.principal.name)


@router.delete("/{id}", status_code=204)
async def revoke_token(caller: Person, id: Id) -> None:
    """It is of no use from now on."""
    if id != caller.principal.token_id:  # a token may always give itself up
        caller.own()

    async def work(session: Session) -> None:
        token = await tokens.get_token(session, id)
        if token.user != caller.principal.name and not caller.principal.may(Permission.ADMINISTER):
            raise NotFound("token", id)
        await tokens.revoke_token(session, id)

    await caller.server.store.change(work, actor=caller.principal.name)
