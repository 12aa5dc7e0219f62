"""What the routes use of the server around them, and who their caller is.

Deny by default: a route declares which permission its caller needs by the type of its first parameter.
`api/auth/permissions.py` has the checks within a route, and the check that they were made.
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
from rackwright.annealer.power_orders import PowerOrders
from rackwright.annealer.providers import ProviderRefresher
from rackwright.annealer.supervision import Supervisor
from rackwright.annealer.veto import VetoedChanges
from rackwright.api.auth.authentication import Authenticator, Forbidden, Unauthenticated
from rackwright.api.auth.passwords import Passwords
from rackwright.api.auth.permissions import Permissions, RequestVisibility
from rackwright.domain.machines.machine_names import DEFAULT
from rackwright.domain.networks.call_targets import IpNetwork
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
    """Settings for people's sessions, and which networks may read metrics or be called by webhooks."""

    sessions: Lifetime = field(default_factory=Lifetime)
    metrics_allow: Sequence[IpNetwork] = ()
    webhook_allow: Sequence[IpNetwork] = ()


@dataclass(frozen=True)
class Server:
    """The parts of a running server that the routes use."""

    store: Store
    jigs: Mapping[str, Jig]
    claimant: Claimant
    vetoed_changes: VetoedChanges
    hooks: HookDispatcher
    installs: InstallAdvancer
    power_orders: PowerOrders
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
    """For what machines boot over the network: a console, for instance."""
    discovered_names: str = DEFAULT
    """The pattern by which machines are named that register by themselves."""
    simulates: bool = False
    """Its machines are simulated: they have no network, so their routes are served beside those for people."""
    supervisor: Supervisor = field(default_factory=Supervisor)
    """Runs the work in the background."""


class Caller(Permissions):
    """The caller of one request: the way to the store, and the permissions there."""

    def __init__(self, server: Server, principal: Principal) -> None:
        super().__init__(principal)
        self.server = server

    @asynccontextmanager
    async def read(self, *, once: bool = False) -> AsyncIterator[tuple[Session, RequestVisibility]]:
        """Open a session to read with, and what the caller may see: every query is to be kept to that.

        `once`: there will be one query. For a caller who sees all, it needs no transaction.
        """
        async with self.server.store.read(once=once and self.sees_all) as session:
            visible = await self.visibility(session)
            yield session, visible
            self.check_visibility_used(visible)

    async def change(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Run one transaction in the caller's name; roles' hooks may refuse it."""
        return await self.server.vetoed_changes.change(self._with_check(work), actor=self.principal.name)

    async def change_graph(self, work: Callable[[GraphSession], Awaitable[T]]) -> T:
        """As `change`, with the graph lock."""
        return await self.server.vetoed_changes.change_graph(self._with_check(work), actor=self.principal.name)

    def _with_check(self, work: Callable[[S], Awaitable[T]]) -> Callable[[S], Awaitable[T]]:
        """Return the work that fails unless it asked for a permission."""

        async def checked_work(session: S) -> T:
            result = await work(session)
            self.check_authorized(session)
            return result

        return checked_work

    async def run_dry(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Run the dry run of a change, in a transaction that only reads.

        As the change does, it calls `authorize` for where it would be made. Hooks are not asked.
        """
        async with self.server.store.read() as session:
            return await self._with_check(work)(session)


_bearer = HTTPBearer(auto_error=False)


async def authenticate(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Caller:
    """Return the caller, who may be anybody known: the dependency of routes about the caller."""
    authenticator: Authenticator = request.app.state.authenticator
    principal = await authenticator.identify(request, credentials.credentials if credentials else None)
    request.state.principal = principal  # for `record_refusal`
    request.state.credentials = credentials  # for streams, which check them again
    return Caller(request.app.state.server, principal)


def require_permission(permission: Permission, *, anywhere: bool = False) -> Callable[..., Awaitable[Caller]]:
    """Return the dependency by which a route declares which permission its caller needs.

    `anywhere`: somewhere is enough; the route itself checks where, with `authorize` or `read`.
    """

    async def permitted_caller(caller: Annotated[Caller, Depends(authenticate)]) -> Caller:
        principal = caller.principal
        if not (principal.may_somewhere if anywhere else principal.may)(permission):
            raise Forbidden(f"Your role {principal.role} does not allow this; it takes the permission {permission}.")
        return caller

    return permitted_caller


Person = Annotated[Caller, Depends(authenticate)]
"""For routes about the caller: anybody who is known."""
Reader = Annotated[Caller, Depends(require_permission(Permission.READ))]
"""For routes that show the whole system."""
ScopedReader = Annotated[Caller, Depends(require_permission(Permission.READ, anywhere=True))]
"""For routes that read through `Caller.read`, and show a caller who may see a part just that part."""
Writer = Annotated[Caller, Depends(require_permission(Permission.WRITE, anywhere=True))]
Administrator = Annotated[Caller, Depends(require_permission(Permission.ADMINISTER))]
