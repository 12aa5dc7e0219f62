"""What one request may do and see, and whether that was asked.

Deny by default: a change of somebody who may not write everywhere is undone unless it asked `authorize` where it was
made; an answer to somebody who may not see everything is refused unless its queries were kept to what may be seen.
"""

from collections.abc import Sequence

from rackwright.api.auth.authentication import Forbidden
from rackwright.domain.people import GRANTS, SCOPES, Permission, Principal
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING, Visibility
from rackwright.store.graph.deployments import SYSTEM, get_deployment
from rackwright.store.people.users import deployment_and_ancestors, deployment_subtrees


class RequestVisibility(Visibility):
    """What a request may see. It knows whether anything was kept to that."""

    def __init__(self, deployments: Sequence[int] | None) -> None:
        super().__init__(deployments)
        self.asked = False
        """Whether somebody kept what was read to it."""

    def condition(self, seen: str) -> str:
        self.asked = True
        return super().condition(seen)

    def deployments(self) -> Sequence[int] | None:
        """Return the deployments, for what is kept to them otherwise than by a query. None: all, and what belongs to
        none."""
        self.asked = True
        return self._deployments

    def concerns_everybody(self) -> None:
        """Say that what is read is everybody's, so there is nothing to keep it to."""
        self.asked = True


class Permissions:
    """What the principal of a request may do. It knows in which transaction that was asked."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self._asked_in: Session | None = None
        """The transaction, which is another one when a change is tried again."""

    # --- changes

    async def authorize(
        self, session: Session, deployment_id: int | None, permission: Permission = Permission.WRITE
    ) -> None:
        """Refuses what the caller may not do in this deployment. None: what belongs to no deployment, or to all."""
        self._asked_in = session
        if self.principal.may(permission):
            return
        line = [] if deployment_id is None else await deployment_and_ancestors(session, deployment_id)
        if not line or not self.principal.may_in(permission, line):
            where = "here" if line else "for the whole system"
            raise Forbidden(f"This takes the permission {permission} {where}, which you do not have.")

    async def may_accept(self, session: Session) -> bool:
        """Whether the caller may let machines in. They belong to nobody yet, so it takes the whole system."""
        if self.principal.may(Permission.WRITE):
            return True
        line = await deployment_and_ancestors(session, (await get_deployment(session, SYSTEM, EVERYTHING)).id)
        return self.principal.may_in(Permission.WRITE, line)

    async def authorize_accepting(self, session: Session) -> None:
        """Refuses whoever may not let machines in."""
        await self.authorize(session, (await get_deployment(session, SYSTEM, EVERYTHING)).id)

    def concerns_caller(self, session: Session) -> None:
        """What this changes is the caller's own, so no deployment has a say in it. `own` has been asked before."""
        self._asked_in = session

    def was_answered_before(self, session: Session) -> None:
        """Nothing is changed: the answer is the one that this caller, with the same permissions, got before."""
        self._asked_in = session

    def check_asked(self, session: Session) -> None:
        """Refuses a change that was made without asking, unless the caller may change everything."""
        if self._asked_in is not session:
            self.require(Permission.WRITE)

    # --- everywhere

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

    def check_limited(self, visible: RequestVisibility) -> None:
        """Refuses an answer that was kept to nothing, unless the caller may see everything."""
        if not visible.asked:
            self.require(Permission.READ)
