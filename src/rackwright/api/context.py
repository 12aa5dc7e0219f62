"""What the routes use of the server around them, and who is asking.

Deny by default: a route declares what it asks of its caller by the type of its first parameter. A change of somebody
who may not write everywhere is undone unless it asked `authorize` where it was made; an answer to somebody who may not
see everything is refused unless its queries were kept `within` what he may.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from rackwright.annealer.annealer import Annealer
from rackwright.annealer.hooks import HookDispatcher
from rackwright.annealer.installs import Installs
from rackwright.annealer.providers import Providers
from rackwright.annealer.supervision import Supervisor
from rackwright.annealer.veto import Judge
from rackwright.api.auth.authentication import Doorkeeper, Forbidden, Unauthenticated
from rackwright.api.auth.passwords import Passwords
from rackwright.domain.machines.machine_names import DEFAULT
from rackwright.domain.networks.call_targets import Network
from rackwright.domain.people import GRANTS, SCOPES, Permission, Principal
from rackwright.jigs.base import Jig
from rackwright.provision.images.shelf import Shelf
from rackwright.store.db.session import GraphSession, Session, Store
from rackwright.store.graph.deployments import SYSTEM, get_deployment
from rackwright.store.people.sessions import Lifetime
from rackwright.store.people.users import below, lineage
from rackwright.store.runs.claims_and_settling import Claimant

__all__ = [
    "Administrator",
    "Caller",
    "Forbidden",
    "Person",
    "Policy",
    "Reader",
    "ScopedReader",
    "Server",
    "Unauthenticated",
    "Writer",
]

T = TypeVar("T")
S = TypeVar("S", bound=Session)


@dataclass(frozen=True)
class Policy:
    """What the settings say about people and what they see."""

    sessions: Lifetime = field(default_factory=Lifetime)
    metrics_allow: Sequence[Network] = ()
    webhook_allow: Sequence[Network] = ()


@dataclass(frozen=True)
class Server:
    """The parts of a running server."""

    store: Store
    jigs: Mapping[str, Jig]
    claimant: Claimant
    judge: Judge
    hooks: HookDispatcher
    installs: Installs
    shelf: Shelf
    providers: Providers
    cap: int = 10
    policy: Policy = field(default_factory=Policy)
    passwords: Passwords = field(default_factory=Passwords)
    heartbeat: float = 10.0
    """Seconds between the heartbeats that machines are told to send."""
    annealer: Annealer | None = None
    """None: work is done by hand."""
    kernel_arguments: str = ""
    discovered_names: str = DEFAULT
    """The pattern by which machines are named that come by themselves."""
    """For what machines boot over the network: a console, say."""
    simulates: bool = False
    """Its machines are simulated: they have no network, so their interface is served beside people's."""
    supervisor: Supervisor = field(default_factory=Supervisor)
    """Runs all that works by itself."""


@dataclass(frozen=True)
class Caller:
    """One request's way to the store."""

    server: Server
    principal: Principal

    @asynccontextmanager
    async def read(self, *, once: bool = False) -> AsyncIterator[Session]:
        """A look at what the caller may see: to its queries, nothing else is there.

        `once`: there will be one query. For who sees all, it needs no transaction.
        """
        async with self.server.store.read(once=once and self.sees_all) as session:
            session.sees = await self.visible(session)
            yield session
            if not session.limited:
                self.require(Permission.READ)

    @asynccontextmanager
    async def looking(self, session: Session) -> AsyncIterator[None]:
        """Within a change: what is read in this block is no more than the caller may see."""
        session.sees = await self.visible(session)
        try:
            yield
        finally:
            session.sees = None

    async def change(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """One transaction in the caller's name; roles' hooks may refuse it."""
        return await self.server.judge.change(self._authorized(work), actor=self.principal.name)

    async def change_graph(self, work: Callable[[GraphSession], Awaitable[T]]) -> T:
        """As `change`, with the graph lock."""
        return await self.server.judge.change_graph(self._authorized(work), actor=self.principal.name)

    def _authorized(self, work: Callable[[S], Awaitable[T]]) -> Callable[[S], Awaitable[T]]:
        async def authorized(session: S) -> T:
            result = await work(session)
            if not session.authorized:
                self.require(Permission.WRITE)
            return result

        return authorized

    async def authorize(
        self, session: Session, deployment_id: int | None, permission: Permission = Permission.WRITE
    ) -> None:
        """Refuses what the caller may not do in this deployment. None: what belongs to no deployment, or to all."""
        session.authorized = True
        if self.principal.may(permission):
            return
        line = [] if deployment_id is None else await lineage(session, deployment_id)
        if not line or not self.principal.may_in(permission, line):
            where = "here" if line else "for the whole system"
            raise Forbidden(f"This takes the permission {permission} {where}, which you do not have.")

    async def may_accept(self, session: Session) -> bool:
        """Whether the caller may let machines in. They belong to nobody yet, so it takes the whole system."""
        if self.principal.may(Permission.WRITE):
            return True
        line = await lineage(session, (await get_deployment(session, SYSTEM)).id)
        return self.principal.may_in(Permission.WRITE, line)

    async def authorize_accepting(self, session: Session) -> None:
        """Refuses whoever may not let machines in."""
        await self.authorize(session, (await get_deployment(session, SYSTEM)).id)

    @property
    def is_administrator(self) -> bool:
        """Whether the caller may say what only administrators may, everywhere."""
        return self.principal.may(Permission.ADMINISTER)

    def require(self, permission: Permission) -> None:
        """Refuses whoever does not have the permission everywhere."""
        if not self.principal.may(permission):
            raise Forbidden(f"This takes the permission {permission} for the whole system, which you do not have.")

    def own(self) -> None:
        """Changes of one's own access take a login, or a token that is not limited to reading or to a subtree."""
        if Permission.WRITE not in SCOPES[self.principal.scope] or self.principal.subtree is not None:
            raise Forbidden("Your token is too narrow for this. Log in, or use one of scope `write` for everything.")

    def concerns_caller(self, session: Session) -> None:
        """What this changes is the caller's own, so no deployment has a say in it. `own` has been asked before."""
        session.authorized = True

    @property
    def sees_all(self) -> bool:
        return Permission.READ in GRANTS[self.principal.role] and self.principal.subtree is None

    async def visible(self, session: Session) -> list[int] | None:
        """The deployments whose things the caller may see; None: all, and what belongs to none."""
        if self.sees_all:
            return None
        principal, limits = self.principal, []
        if Permission.READ not in GRANTS[principal.role]:
            limits.append(await below(session, list(principal.grants)))
        if principal.subtree is not None:
            limits.append(await below(session, [principal.subtree]))
        return sorted(set.intersection(*limits))


_bearer = HTTPBearer(auto_error=False)


async def authenticated(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Caller:
    """Whoever it is: the dependency of routes about the caller."""
    doors: Doorkeeper = request.app.state.doors
    principal = await doors.identify(request, credentials.credentials if credentials else None)
    request.state.principal = principal  # for the record of what was refused
    request.state.credentials = credentials  # for streams, which ask again
    return Caller(request.app.state.server, principal)


def allowed(permission: Permission, *, anywhere: bool = False) -> Callable[..., Awaitable[Caller]]:
    """The dependency by which a route declares what it asks. `anywhere`: where, it asks itself, with `authorize` or
    `read`."""

    async def caller(person: Annotated[Caller, Depends(authenticated)]) -> Caller:
        principal = person.principal
        if not (principal.may_somewhere if anywhere else principal.may)(permission):
            raise Forbidden(f"Your role {principal.role} does not allow this; it takes the permission {permission}.")
        return person

    return caller


Person = Annotated[Caller, Depends(authenticated)]
Reader = Annotated[Caller, Depends(allowed(Permission.READ))]
"""For routes that show the whole system."""
ScopedReader = Annotated[Caller, Depends(allowed(Permission.READ, anywhere=True))]
"""For routes that look through `Caller.read`, and show those who may see a part just that."""
Writer = Annotated[Caller, Depends(allowed(Permission.WRITE, anywhere=True))]
Administrator = Annotated[Caller, Depends(allowed(Permission.ADMINISTER))]
