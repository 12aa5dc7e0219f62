"""A small rack in a real database, told in words: noderoles are `role@node`, nodes n1, n2 and so on."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from tests.unit.domain.scene import role

from rackwright.domain.catalogue import Attrib, Barclamp, Jig, JsonObject
from rackwright.domain.graph.snapshots import CommitPlan
from rackwright.domain.states import NodeRoleState
from rackwright.store.barclamp_import import import_barclamps
from rackwright.store.bootstrap import first_start
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph import commits, snapshots
from rackwright.store.graph.binding import bind_proposed
from rackwright.store.graph.deployments import DeploymentRecord, create_deployment, get_deployment
from rackwright.store.graph.noderoles import NodeRoleRecord, select_noderoles
from rackwright.store.machines.nodes import NewNode, create_node
from rackwright.store.runs.claims import Claimant, claim_runs
from rackwright.store.runs.settling import FinishedRun, settle_runs
from rackwright.store.store import Store

T = TypeVar("T")


def barclamp(*lines: str, attribs: Iterable[Attrib] = (), **templates: JsonObject) -> Barclamp:
    roles = [role(line) for line in lines]
    for one in roles:
        one.template.update(templates.get(one.name, {}))
    return Barclamp("test", jigs=(Jig("hand", "test", "noop"),), roles=tuple(roles), attribs=tuple(attribs))


class Rack:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.runs: dict[str, int] = {}

    async def fill(self, roles: Barclamp, nodes: int = 3, deployments: str = "d") -> None:
        """`deployments` in a line, each below the one before."""
        await first_start(self.store, [], "admin.example")
        await self.do(import_barclamps, [roles])
        for number in range(1, nodes + 1):
            await self.do(create_node, NewNode(f"n{number}.example", alive=True))
        parent = "system"
        for name in deployments.split():
            await self.do(create_deployment, name, parent)
            parent = name

    async def do(self, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        return await self.store.change_graph(lambda session: work(session, *args))

    async def edit(self, deployment: str, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        async def found(session: Session) -> T:
            return await work(session, await get_deployment(session, deployment, EVERYTHING), *args)

        return await self.store.change_graph(found)

    async def bind(self, *bindings: str, into: str = "d") -> None:
        async def work(session: GraphSession, home: DeploymentRecord) -> None:
            if home.proposed_id is None:
                await snapshots.propose(session, home)
            places = [await _place(session, one) for one in bindings]
            await bind_proposed(session, await get_deployment(session, home.id, EVERYTHING), places)

        await self.edit(into, work)

    async def commit(self, *bindings: str, into: str = "d") -> None:
        """Commit the proposal, with these bindings added to it."""
        if bindings:
            await self.bind(*bindings, into=into)
        await self.edit(into, _commit_seen)

    async def unbind(self, *names: str, from_: str = "d") -> None:
        await self.edit(from_, snapshots.propose)
        await self.edit(from_, snapshots.unbind, [(await self.find(name)).id for name in names])
        await self.edit(from_, _commit_seen)

    async def start(self) -> set[str]:
        """Claim all that can run."""
        work = await self.do(claim_runs, Claimant("test"), 100)
        started = {f"{run.role}@{run.node.removesuffix('.example')}": run.id for run in work.started}
        self.runs |= started
        return set(started)

    async def end(self, name: str, ok: bool = True, **wall: Any) -> None:
        await self.do(settle_runs, [FinishedRun(self.runs[name], ok, wall=wall)])

    async def work(self) -> list[str]:
        """Let all run and succeed until nothing is left; gives what ran, in order."""
        ran: list[str] = []
        while True:
            before = await self.states()
            started = sorted(await self.start())
            for name in started:
                await self.end(name)
            ran += started
            if not started and before == await self.states():
                return ran

    async def all(self) -> dict[str, NodeRoleRecord]:
        async with self.store.read() as session:
            found = await select_noderoles(session, "ORDER BY nr.id")
        return {f"{one.role}@{one.node.removesuffix('.example')}": one for one in found}

    async def find(self, name: str) -> NodeRoleRecord:
        return (await self.all())[name]

    async def states(self) -> dict[str, NodeRoleState]:
        return {name: one.state for name, one in (await self.all()).items()}

    async def parents(self, name: str) -> set[str]:
        known = await self.all()
        async with self.store.read() as session:
            rows = await session.rows("SELECT parent_id FROM node_role_edges WHERE child_id = :id", id=known[name].id)
        ids = {row.parent_id for row in rows}
        return {other for other, one in known.items() if one.id in ids}

    async def node_id(self, node: str) -> int:
        async with self.store.read() as session:
            id: int = await session.value("SELECT id FROM nodes WHERE name = :name", name=f"{node}.example")
        return id


async def _place(session: Session, name: str) -> tuple[int, str]:
    role_name, node = name.split("@")
    full = node if node.endswith(".internal") else f"{node}.example"
    return await session.value("SELECT id FROM nodes WHERE name = :name", name=full), role_name


async def _commit_seen(session: GraphSession, home: DeploymentRecord) -> CommitPlan:
    """Commit what the plan says, as somebody who read it: what wipes is not committed otherwise."""
    plan = await commits.plan_proposal_commit(session, home)
    return await commits.commit_proposal(session, home, plan.digest)
