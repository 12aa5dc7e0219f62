"""What one request may do and see, and whether that was checked.

Deny by default: a change by a caller who may not write everywhere is undone unless it called `authorize` for where it
was made; an answer to a caller who may not see everything is refused unless its queries were kept to what the caller
may see.
"""

from collections.abc import Sequence

from rackwright.api.auth.authentication import Forbidden
from rackwright.domain.people import GRANTS, SCOPES, Permission, Principal
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING, Visibility
from rackwright.store.graph.deployments import SYSTEM, get_deployment
from rackwright.store.people.users import deployment_and_ancestors, deployment_subtrees


class RequestVisibility(Visibility):
    """What a request may see, and whether any query was kept to that."""

    def __init__(self, deployments: Sequence[int] | None) -> None:
        super().__init__(deployments)
        self.was_used = False
        """Whether a query was kept to it."""

    def condition(self, seen: str) -> str:
        self.was_used = True
        return super().condition(seen)

    def deployments(self) -> Sequence[int] | None:
        """Return the deployments; None: all, and what belongs to none.

        For what is kept to them otherwise than by a query.
        """
        self.was_used = True
        return self._deployments

    def mark_public(self) -> None:
        """Note that what is read is everybody's, so there is nothing to keep it to."""
        self.was_used = True


class Permissions:
    """What the principal of a request may do, and in which transaction that was checked."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self._authorized_in: Session | None = None
        """The transaction in which a permission was checked last; a change that is tried again has another one."""

    # --- changes

    async def authorize(
        self, session: Session, deployment_id: int | None, permission: Permission = Permission.WRITE
    ) -> None:
        """Refuse what the caller may not do in this deployment. None: what belongs to no deployment, or to all."""
        self._authorized_in = session
        if self.principal.may(permission):
            return
        ancestors = [] if deployment_id is None else await deployment_and_ancestors(session, deployment_id)
        if not ancestors or not self.principal.may_in(permission, ancestors):
            where = "here" if ancestors else "for the whole system"
            raise Forbidden(f"This takes the permission {permission} {where}, which you do not have.")

    async def may_accept(self, session: Session) -> bool:
        """Return whether the caller may let machines in.

        Such machines belong to nobody yet, so it takes the permission for the whole system.
        """
        if self.principal.may(Permission.WRITE):
            return True
        ancestors = await deployment_and_ancestors(session, (await get_deployment(session, SYSTEM, EVERYTHING)).id)
        return self.principal.may_in(Permission.WRITE, ancestors)

    async def authorize_accepting(self, session: Session) -> None:
        """Refuse a caller who may not let machines in."""
        await self.authorize(session, (await get_deployment(session, SYSTEM, EVERYTHING)).id)

    def mark_own_change(self, session: Session) -> None:
        """Note that this changes what is the caller's own, so that no deployment has a say in it.

        `require_unlimited_credentials` has been called before.
        """
        self._authorized_in = session

    def mark_replayed(self, session: Session) -> None:
        """Note that nothing is changed: the answer is one that this caller, with the same permissions, got before."""
        self._authorized_in = session

    def check_authorized(self, session: Session) -> None:
        """Refuse a change for which no permission was checked, unless the caller may change everything."""
        if self._authorized_in is not session:
            self.require(Permission.WRITE)

    # --- everywhere

    @property
    def is_administrator(self) -> bool:
        """Whether the caller is an administrator everywhere."""
        return self.principal.may(Permission.ADMINISTER)

    def require(self, permission: Permission) -> None:
        """Refuse a caller who does not have the permission everywhere."""
        if not self.principal.may(permission):
            raise Forbidden(f"This takes the permission {permission} for the whole system, which you do not have.")

    def require_unlimited_credentials(self) -> None:
        """Refuse a token that is limited to reading or to a subtree: it may not change its owner's own access."""
        if Permission.WRITE not in SCOPES[self.principal.scope] or self.principal.subtree is not None:
            raise Forbidden("Your token is too narrow for this. Log in, or use one of scope `write` for everything.")

    # --- what may be seen

    @property
    def sees_all(self) -> bool:
        return Permission.READ in GRANTS[self.principal.role] and self.principal.subtree is None

    async def visibility(self, session: Session) -> RequestVisibility:
        """Return what the caller may see."""
        if self.sees_all:
            return RequestVisibility(None)
        principal, limits = self.principal, []
        if Permission.READ not in GRANTS[principal.role]:
            limits.append(await deployment_subtrees(session, list(principal.grants)))
        if principal.subtree is not None:
            limits.append(await deployment_subtrees(session, [principal.subtree]))
        return RequestVisibility(sorted(set.intersection(*limits)))

    def check_visibility_used(self, visible: RequestVisibility) -> None:
        """Refuse an answer that was not kept to what the caller may see, unless that is everything."""
        if not visible.was_used:
            self.require(Permission.READ)
