"""A dry run of binding for many targets at once: a drag asks about everything it could end on in one request.

What is dragged is a role that is tried on each of many nodes, or nodes that are tried together with each of many roles.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from rackwright.api.context import Caller, Forbidden
from rackwright.api.http.problems import Problem, problem_of_error
from rackwright.api.routes.node_roles import CreatedOut, id_unless_new
from rackwright.domain.errors import Invalid, NotFound, RackwrightError
from rackwright.domain.graph.binding import BindPlan
from rackwright.domain.graph.noderole_graph import Graph
from rackwright.store.db.session import Session
from rackwright.store.graph.binding import BindRequest, plan_each_binding
from rackwright.store.graph.deployments import DeploymentRecord
from rackwright.store.machines.nodes import NodeLocation, find_node_locations

MOST_TARGETS = 1_000
MOST_BINDINGS = 10_000
"""Bindings of all targets together, and of one request to bind."""


class TargetsIn(BaseModel):
    """Nodes and roles to try with each other, for a dry run alone: it says of each node, or of each role, whether it
    could be bound by itself."""

    model_config = ConfigDict(extra="forbid")

    nodes: list[Annotated[str, Field(max_length=253)]] = Field(
        min_length=1, max_length=MOST_BINDINGS, examples=[["n1.rack.example", "n2.rack.example"]]
    )
    roles: list[Annotated[str, Field(max_length=63)]] = Field(
        min_length=1, max_length=MOST_TARGETS, examples=[["crowbar-installed-node"]]
    )
    each: Literal["node", "role"] = Field(
        description="What the targets are: `node` tries all the roles on each node, `role` each role on all the nodes"
        f" together. At most {MOST_TARGETS} targets, and {MOST_BINDINGS} bindings in all."
    )

    def check_size(self) -> None:
        """Refuse more targets or bindings than one request may ask about."""
        names = self.nodes if self.each == "node" else self.roles
        if len(names) > MOST_TARGETS:
            raise Invalid(
                f"One request asks about at most {MOST_TARGETS} targets; these are {len(names)} {self.each}s. "
                "Ask in several requests.",
                f"/{self.each}s",
            )
        bindings = len(self.nodes) * len(self.roles)
        if bindings > MOST_BINDINGS:
            raise Invalid(
                f"{len(self.nodes)} nodes with {len(self.roles)} roles are {bindings} bindings; one request takes at "
                f"most {MOST_BINDINGS}. Ask in several requests.",
                f"/{self.each}s",
            )

    def targets(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """Each target, and the (node, role) pairs that would be bound with it."""
        if self.each == "node":
            return [(node, [(node, role) for role in self.roles]) for node in self.nodes]
        return [(role, [(node, role) for node in self.nodes]) for role in self.roles]


class TargetOut(BaseModel):
    """Whether a target may be bound, and what would be made with it."""

    target: str = Field(description="The node or the role, as it was named.", examples=["n1.rack.example"])
    ids: list[int | None] = Field(description="Of its noderoles, in their order; null for what would be new.")
    created: list[CreatedOut]
    refused: Problem | None = Field(description="Why binding it would be refused; null: it would not.")


class TargetsOut(BaseModel):
    """The answer for each target by itself, in the order they were named."""

    targets: list[TargetOut]


async def try_targets(
    session: Session, caller: Caller, deployment: DeploymentRecord, targets: TargetsIn
) -> tuple[TargetsOut, Forbidden | None]:
    """Return whether each target could be bound, without binding any; also the first refusal for want of a permission.

    The permission to write in the deployment was checked before. A node that the caller may not see counts as missing.
    """
    nodes = await find_node_locations(session, set(targets.nodes), await caller.visibility(session))
    forbidden = await _forbidden_deployments(session, caller, {node.deployment_id for node in nodes.values()})
    refused: dict[str, RackwrightError] = {}
    requests: dict[str, Sequence[BindRequest]] = {}
    for target, bindings in targets.targets():
        refusal = _find_refusal(nodes, forbidden, [node for node, _ in bindings])
        if refusal is not None:
            refused[target] = refusal
        else:
            requests[target] = [(nodes[node].id, role) for node, role in bindings]
    plans, graph = await plan_each_binding(session, deployment, list(requests.values()))
    answers: dict[str, BindPlan | RackwrightError] = {**refused, **dict(zip(requests, plans, strict=True))}
    out = TargetsOut(targets=[_target_out(target, answers[target], graph) for target, _ in targets.targets()])
    return out, next(iter(forbidden.values()), None)


async def _forbidden_deployments(session: Session, caller: Caller, deployment_ids: set[int]) -> dict[int, Forbidden]:
    """Return the deployments, of these, that the caller may take no node from, each with its refusal."""
    forbidden = {}
    for deployment_id in sorted(deployment_ids):
        try:
            await caller.authorize(session, deployment_id)
        except Forbidden as refusal:
            forbidden[deployment_id] = refusal
    return forbidden


def _find_refusal(
    nodes: Mapping[str, NodeLocation], forbidden: Mapping[int, Forbidden], names: Sequence[str]
) -> RackwrightError | None:
    """Return why these nodes cannot be bound together; None: nothing known so far forbids it.

    That is looked at before any rule of binding is applied.
    """
    for name in names:
        if name not in nodes:
            return NotFound("node", name)
    return next(
        (forbidden[nodes[name].deployment_id] for name in names if nodes[name].deployment_id in forbidden), None
    )


def _target_out(target: str, answer: BindPlan | RackwrightError, graph: Graph) -> TargetOut:
    if isinstance(answer, RackwrightError):
        return TargetOut(target=target, ids=[], created=[], refused=problem_of_error(answer))
    created = [
        CreatedOut(
            id=id_unless_new(noderole.id),
            role=noderole.role,
            node=graph.node_name(noderole.node_id),
            node_id=noderole.node_id,
            cohort=noderole.cohort,
        )
        for noderole in answer.created
    ]
    return TargetOut(target=target, ids=[id_unless_new(id) for id in answer.bound], created=created, refused=None)
