"""What the routes use of the server around them, and who is asking."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from rackwright.annealer.hooks import HookDispatcher
from rackwright.annealer.installs import Installs
from rackwright.annealer.judged import Judge
from rackwright.domain.errors import RackwrightError
from rackwright.domain.people import Permission, Principal
from rackwright.jigs.base import Jig
from rackwright.store.people import find_principal
from rackwright.store.runs import Claimant
from rackwright.store.session import Session, Store

T = TypeVar("T")


class Unauthenticated(RackwrightError):
    """Say who you are: send a token as `Authorization: Bearer ...`."""

    status = 401
    type = "unauthenticated"


class Forbidden(RackwrightError):
    """Your role does not allow this."""

    status = 403
    type = "forbidden"


@dataclass(frozen=True)
class Server:
    """The parts of a running server."""

    store: Store
    jigs: Mapping[str, Jig]
    claimant: Claimant
    judge: Judge
    hooks: HookDispatcher
    installs: Installs
    cap: int = 10


@dataclass(frozen=True)
class Caller:
    """One request's way to the store."""

    server: Server
    principal: Principal

    async def change(self, work: Callable[[Session], Awaitable[T]], *, graph: bool = False) -> T:
        """One transaction in the caller's name; roles' hooks may refuse it."""
        return await self.server.judge.change(work, actor=self.principal.name, graph=graph)

    async def authorize(self, session: Session, deployment_id: int, permission: Permission = Permission.WRITE) -> None:
        """Refuse what the caller may not do to this deployment. Called in the change's transaction, before the work."""
        if not self.principal.may(permission):
            raise Forbidden(f"Your role {self.principal.role} does not allow this in deployment {deployment_id}.")


_bearer = HTTPBearer(auto_error=False)


def allowed(permission: Permission) -> Callable[..., Awaitable[Caller]]:
    """The dependency by which a route declares what it asks of its caller."""

    async def caller(
        request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
    ) -> Caller:
        server: Server = request.app.state.server
        principal = None
        if credentials is not None:
            async with server.store.read() as session:
                principal = await find_principal(session, credentials.credentials)
        if principal is None:
            raise Unauthenticated
        if not principal.may(permission):
            raise Forbidden(f"Your role {principal.role} does not allow this; it takes the permission {permission}.")
        return Caller(server, principal)

    return caller


Reader = Annotated[Caller, Depends(allowed(Permission.READ))]
Writer = Annotated[Caller, Depends(allowed(Permission.WRITE))]
Administrator = Annotated[Caller, Depends(allowed(Permission.ADMINISTER))]
