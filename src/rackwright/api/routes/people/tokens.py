"""/api/v2/tokens: a caller's own tokens; for administrators everybody's, also of users without a password."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from rackwright.api.context import Forbidden, Person
from rackwright.api.http.answers import Page, Resource
from rackwright.api.http.etags import make_etag
from rackwright.api.http.paging import ListQuery, list_parameters, read_page
from rackwright.api.http.types import Id
from rackwright.api.http.writing import Terms, write
from rackwright.domain.errors import NotFound
from rackwright.domain.people import Permission, Scope
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph.deployments import get_deployment
from rackwright.store.people import tokens
from rackwright.store.people.tokens import TOKENS, NewToken, TokenRecord, select_tokens
from rackwright.store.people.users import get_user

router = APIRouter(prefix="/tokens", tags=["people"])


class TokenIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=100, examples=["backup script"])
    scope: Scope = Field(Scope.READ, description="The most it may do, whatever its owner may.")
    deployment: str | None = Field(None, description="Only in this deployment and below it.")
    expires_at: AwareDatetime | None = None
    user: str | None = Field(None, description="Whose it is; only administrators make tokens for others.")


class TokenOut(Resource):
    """What a program shows instead of a password."""

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
        return cls(etag=make_etag(token.id, token.name, token.scope, token.deployment, token.expires_at), **vars(token))


class NewTokenOut(TokenOut):
    token: str = Field(description="Shown this once.")


TokenListQuery = Annotated[ListQuery, Depends(list_parameters(TOKENS, "user"))]
OwnerName = Annotated[str | None, Query(max_length=63, description="Another user's, for administrators.")]


@router.get("", response_model=Page[TokenOut])
async def list_tokens(caller: Person, query: TokenListQuery, user: OwnerName = None) -> Response:
    """Your tokens; another user's, for administrators."""
    async with caller.server.store.read() as session:
        user_id = caller.principal.user_id
        if user is not None and user != caller.principal.name:
            caller.require(Permission.ADMINISTER)
            user_id = (await get_user(session, user)).id
        of_user = "t.user_id = :user_id"
        return await read_page(
            session, EVERYTHING, query, select_tokens, TokenOut, TokenOut.of, of_user, user_id=user_id
        )


@router.post("", status_code=201, response_model=NewTokenOut)
async def issue_token(caller: Person, body: TokenIn) -> Response:
    """Make a token. It is shown in this answer and never again."""
    caller.require_unlimited_credentials()
    if not caller.principal.covers(body.scope):
        raise Forbidden(f"Your token is of scope {caller.principal.scope}; it cannot make one of scope {body.scope}.")

    async def work(session: Session) -> NewTokenOut:
        caller.mark_own_change(session)
        owner_id = caller.principal.user_id
        if body.user is not None and body.user != caller.principal.name:
            caller.require(Permission.ADMINISTER)
            owner_id = (await get_user(session, body.user)).id
        if caller.principal.token_id is not None:
            await tokens.check_token_lifetime(session, caller.principal.token_id, body.expires_at)
        visible = await caller.visibility(session)  # the answer names the deployment
        deployment_id = (
            None if body.deployment is None else (await get_deployment(session, body.deployment, visible)).id
        )
        new = NewToken(owner_id, body.name, body.scope, deployment_id, body.expires_at)
        id, token = await tokens.create_token(session, new)
        return NewTokenOut(**TokenOut.of(await tokens.get_token(session, id)).model_dump(), token=token)

    # No Idempotency-Key: what is kept for it would be the token itself.
    return await write(caller, Terms(), work, status=201)


@router.delete("/{id}", status_code=204)
async def revoke_token(caller: Person, id: Id) -> Response:
    """It is of no use from now on."""
    if id != caller.principal.token_id:  # a token may always give itself up
        caller.require_unlimited_credentials()

    async def work(session: Session) -> None:
        caller.mark_own_change(session)
        token = await tokens.get_token(session, id)
        if token.user != caller.principal.name and not caller.principal.may(Permission.ADMINISTER):
            raise NotFound("token", id)
        await tokens.revoke_token(session, id)

    return await write(caller, Terms(), work)
