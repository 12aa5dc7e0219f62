"""What the routes use of the server around them, and who is asking.

Deny by default: a route declares what it asks of its caller by the type of its first parameter. What is asked within a
route, and that it is asked, is in `api/auth/permissions.py`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from rackwright.annealer.annealer import Annealer
from rackwright.annealer.hooks import HookDispatcher
from rackwright.annealer.installs import InstallAdvancer
from rackwright.annealer.providers import ProviderRefresher
from rackwright.annealer.supervision import Supervisor
from rackwright.annealer.veto import VetoedChanges
from rackwright.api.auth.authentication import Doorkeeper, Forbidden, Unauthenticated
from rackwright.api.auth.passwords import Passwords
from rackwright.api.auth.permissions import Permissions, RequestVisibility
from rackwright.domain.machines.machine_names import DEFAULT
from rackwright.domain.networks.call_targets import Network
from rackwright.domain.people import Permission, Principal
from rackwright.jigs.base import Jig
from rackwright.provision.images.shelf import Shelf
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.people.sessions import Lifetime
from rackwright.store.runs.claims import Claimant
from rackwright.store.store import Store

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
    judge: VetoedChanges
    hooks: HookDispatcher
    installs: InstallAdvancer
    shelf: Shelf
    providers: ProviderRefresher
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


class Caller(Permissions):
    """One request's way to the store, and what it may do there."""

    def __init__(self, server: Server, principal: Principal) -> None:
        super().__init__(principal)
        self.server = server

    @asynccontextmanager
    async def read(self, *, once: bool = False) -> AsyncIterator[tuple[Session, RequestVisibility]]:
        """A look at the store, and what the caller may see there: every query is to be kept to it.

        `once`: there will be one query. For who sees all, it needs no transaction.
        """
        async with self.server.store.read(once=once and self.sees_all) as session:
            visible = await self.visibility(session)
            yield session, visible
            self.check_limited(visible)

    async def change(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """One transaction in the caller's name; roles' hooks may refuse it."""
        return await self.server.judge.change(self._checked(work), actor=self.principal.name)

    async def change_graph(self, work: Callable[[GraphSession], Awaitable[T]]) -> T:
        """As `change`, with the graph lock."""
        return await self.server.judge.change_graph(self._checked(work), actor=self.principal.name)

    def _checked(self, work: Callable[[S], Awaitable[T]]) -> Callable[[S], Awaitable[T]]:
        async def checked(session: S) -> T:
            result = await work(session)
            self.check_asked(session)
            return result

        return checked

    async def try_out(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Run a change's dry run, in a transaction that only reads; as a change, it asks `authorize` where it would be
        made. Hooks are not asked."""
        async with self.server.store.read() as session:
            return await self._checked(work)(session)


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
