"""Installing a node's operating system anew: what is lost by it, and starting it when somebody confirmed that."""

from dataclasses import dataclass

from rackwright.domain.errors import DigestRequired, NotFound, PlanChanged
from rackwright.domain.installs.planned_installs import PlannedInstall
from rackwright.domain.installs.wipes import InstallWipes, digest_wipes
from rackwright.domain.states import Trigger
from rackwright.store.db.session import Session
from rackwright.store.events.outbox import emit
from rackwright.store.graph.noderoles import retry_noderole
from rackwright.store.graph.planned_installs import select_resolved_installs
from rackwright.store.machines.confirmed_wipes import check_wipes, confirm_wipes
from rackwright.store.machines.nodes import NodeRecord


@dataclass(frozen=True)
class ReinstallPlan:
    """What a reinstall would do now."""

    node_role_id: int
    installs: tuple[PlannedInstall, ...]
    """One; none if the role that wipes the node is not one that installs an operating system."""

    @property
    def wipes(self) -> list[InstallWipes]:
        return [install.wipes for install in self.installs]

    @property
    def digest(self) -> str:
        return digest_wipes(f"reinstall {self.node_role_id}", self.wipes)


async def plan_reinstall(session: Session, node: NodeRecord) -> ReinstallPlan:
    """Return what a reinstall of the node would do."""
    rows = await session.rows(
        "SELECT nr.id FROM node_roles nr JOIN roles r ON r.id = nr.role_id AND r.destructive"
        " WHERE nr.node_id = :id AND NOT nr.doomed ORDER BY nr.cohort, nr.id",
        id=node.id,
    )
    if not rows:
        raise NotFound("install role bound to", node.name)
    installs = await select_resolved_installs(session, [rows[0].id], proposed=False)
    return ReinstallPlan(rows[0].id, tuple(installs))


async def start_reinstall(session: Session, node: NodeRecord, digest: str | None = None) -> int:
    """Start a new attempt of the role that wiped the node the last time, and return its noderole's id.

    This is the only way in which a destructive noderole runs again. `digest` is that of the plan that a person saw, and
    confirms what is lost.
    """
    plan = await plan_reinstall(session, node)
    where = f"rackwright node reinstall {node.name} --plan"
    if digest is not None and digest != plan.digest:
        raise PlanChanged(
            f"What is on the disks of {node.name} has changed since you saw it, or what is installed. Look again: "
            f"{where}"
        )
    check_wipes(plan.wipes, digest, where)
    if not plan.installs and digest is None:
        raise DigestRequired(
            f"This wipes what nobody knows on {node.name}. Look at it, and send the digest of what you saw: {where}"
        )
    await retry_noderole(session, plan.node_role_id, Trigger.REINSTALL)
    await confirm_wipes(session, plan.wipes)
    await emit(session, "node.reinstall", node.id, node_id=node.id, data={"node_role_id": plan.node_role_id})
    return plan.node_role_id
