"""Dry runs of targets, for the stateful test to compare with what the bind itself does."""

from collections.abc import Sequence

from rackwright.domain.errors import RackwrightError
from rackwright.domain.graph.binding import BindPlan
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph.binding import BindRequest, plan_each_binding
from rackwright.store.graph.deployments import get_deployment
from rackwright.store.store import Store


async def dry_runs(store: Store, deployment: str, targets: Sequence[Sequence[BindRequest]]) -> list[object]:
    """Return for each target the rule that refuses it, or the shape of what it would create."""
    async with store.read() as session:
        try:
            plans, _ = await plan_each_binding(session, await get_deployment(session, deployment, EVERYTHING), targets)
        except RackwrightError as refused:
            return [refused.type] * len(targets)
    return [shape(plan) if isinstance(plan, BindPlan) else plan.type for plan in plans]


def shape(plan: BindPlan) -> object:
    """Return a plan without the ids that a dry run does not have."""
    created = {noderole.id: (noderole.node_id, noderole.role, noderole.cohort) for noderole in plan.created}
    return (
        list(created.values()),
        sorted((str(created.get(parent, parent)), str(created.get(child, child))) for parent, child in plan.edges),
        plan.recohorted,
    )
