"""A rack to try rules on: the store after its first start, with the `test` barclamp, and a short word for each change.

Each word is one transaction of its own, so that a refused one leaves nothing behind for the next.
"""

import contextlib
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

import pytest

from rackwright.barclamps.loader import known_kinds
from rackwright.domain.attributes import read_at_path
from rackwright.domain.barclamps.barclamp_file import parse_barclamp
from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import Conflict, Rule
from rackwright.domain.graph.binding import BindPlan
from rackwright.domain.graph.snapshots import CommitPlan
from rackwright.domain.runs import Run
from rackwright.domain.states import NodeRoleState
from rackwright.jigs.registry import kinds_that_run_files
from rackwright.store.barclamp_import import import_barclamps
from rackwright.store.db.session import GraphSession, Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph import commits, snapshots
from rackwright.store.graph.binding import bind_proposed
from rackwright.store.graph.deployments import DeploymentRecord, create_deployment, get_deployment
from rackwright.store.graph.noderoles import NodeRoleRecord, select_noderoles, select_parents
from rackwright.store.graph.run_attribs import stage_noderoles
from rackwright.store.machines.nodes import NewNode, create_node, get_node
from rackwright.store.runs.claims import Claimant, ClaimResult, claim_runs
from rackwright.store.runs.settling import FinishedRun, settle_runs
from rackwright.store.store import Store

T = TypeVar("T")

ADMIN = "admin.rack.example"
SYSTEM = "system"

TABLES = (
    *("barclamps", "jigs", "roles", "attribs", "nodes", "node_macs", "deployments", "deployment_roles", "graph"),
    *("snapshots", "snapshot_roles", "snapshot_bindings", "node_roles", "node_role_edges", "node_role_links"),
    *("runs", "events"),
)


@contextlib.contextmanager
def refused(rule: Rule, *names: str) -> Iterator[None]:
    """What follows must be a 409 of just this rule, with all these names in its message; a plan that is another by now
    is a 412."""
    with pytest.raises(Conflict) as caught:
        yield
    status = 412 if rule is Rule.PLAN_CHANGED else 409
    assert (caught.value.status, caught.value.rule) == (status, rule), caught.value.message
    for name in names:
        assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", caught.value.message), caught.value.message


class Rack:
    def __init__(self, store: Store) -> None:
        self.store = store

    async def do(self, work: Callable[[GraphSession], Awaitable[T]]) -> T:
        return await self.store.change_graph(work, actor="tester")

    # --- things

    async def import_text(self, *texts: str) -> None:
        """Import barclamp files."""
        parsed = [parse_barclamp(text, f"barclamp-{number}.yml", known_kinds()) for number, text in enumerate(texts)]
        await self.do(lambda session: import_barclamps(session, parsed))

    async def node(self, name: str, *, admin: bool = False, alive: bool = True, deployment: str | None = None) -> int:
        new = NewNode(_full(name), admin=admin, alive=alive, deployment=deployment)
        return await self.do(lambda session: create_node(session, new))

    async def node_id(self, name: str) -> int:
        async with self.store.read() as session:
            return (await get_node(session, _full(name), EVERYTHING)).id

    async def deployment(self, name: str, parent: str | None = None) -> int:
        return await self.do(lambda session: create_deployment(session, name, parent))

    async def record(self, deployment: str) -> DeploymentRecord:
        async with self.store.read() as session:
            return await get_deployment(session, deployment, EVERYTHING)

    # --- intent

    async def bind(self, deployment: str, *requests: tuple[str, str]) -> BindPlan:
        """Bind each (short node name, role) in the open proposal."""

        async def work(session: GraphSession) -> BindPlan:
            places = [((await get_node(session, _full(node), EVERYTHING)).id, role) for node, role in requests]
            return await bind_proposed(session, await get_deployment(session, deployment, EVERYTHING), places)

        return await self.do(work)

    async def plan(self, deployment: str) -> CommitPlan:
        return await self.do(self._on(deployment, commits.plan_proposal_commit))

    async def commit(self, deployment: str, digest: str | None = None) -> CommitPlan:
        """Commit, as somebody who read the plan: that of `digest`, else that of this moment."""

        async def work(session: GraphSession) -> CommitPlan:
            home = await get_deployment(session, deployment, EVERYTHING)
            seen = digest or (await commits.plan_proposal_commit(session, home)).digest
            return await commits.commit_proposal(session, home, seen)

        return await self.do(work)

    async def propose(self, deployment: str) -> int:
        return await self.do(self._on(deployment, snapshots.propose))

    async def recall(self, deployment: str) -> int:
        return await self.do(self._on(deployment, snapshots.recall))

    async def discard(self, deployment: str) -> None:
        await self.do(self._on(deployment, snapshots.discard))

    async def rollback(self, deployment: str, snapshot_id: int) -> snapshots.Rollback:
        async def work(session: GraphSession) -> snapshots.Rollback:
            return await snapshots.rollback(session, await get_deployment(session, deployment, EVERYTHING), snapshot_id)

        return await self.do(work)

    async def unbind(self, deployment: str, *places: tuple[str, str]) -> set[int]:
        ids = [(await self.at(node, role)).id for node, role in places]

        async def work(session: GraphSession) -> set[int]:
            return await snapshots.unbind(session, await get_deployment(session, deployment, EVERYTHING), ids)

        return await self.do(work)

    async def remove_role(self, deployment: str, role: str) -> list[tuple[str, str]]:
        """What leaves with it, as (node, role)."""

        async def work(session: GraphSession) -> list[NodeRoleRecord]:
            return await snapshots.remove_role(session, await get_deployment(session, deployment, EVERYTHING), role)

        return [(_short(one.node), one.role) for one in await self.do(work)]

    async def set_role_data(self, deployment: str, role: str, data: JsonObject) -> None:
        async def work(session: Session) -> None:
            await snapshots.set_role_data(session, await get_deployment(session, deployment, EVERYTHING), role, data)

        await self.do(work)

    async def set_data(self, deployment: str, node: str, role: str, data: JsonObject) -> None:
        async def work(session: Session) -> None:
            found = await get_node(session, _full(node), EVERYTHING)
            await snapshots.set_binding_data(
                session, await get_deployment(session, deployment, EVERYTHING), found.id, role, data
            )

        await self.do(work)

    async def deploy(self, deployment: str, *requests: tuple[str, str]) -> CommitPlan:
        """Bind in a proposal, opened if need be, and commit it."""
        if (await self.record(deployment)).proposed_id is None:
            await self.propose(deployment)
        await self.bind(deployment, *requests)
        return await self.commit(deployment)

    # --- work

    async def claim(self, limit: int = 100) -> list[Run]:
        """Start up to `limit` more runs."""

        async def work(session: Session) -> ClaimResult:
            running = await session.value("SELECT count(*) FROM runs WHERE state = 'running'")
            return await claim_runs(session, Claimant("tester", file_kinds=kinds_that_run_files()), cap=running + limit)

        return (await self.do(work)).started

    async def finish(self, *runs: Run, ok: bool = True, wall: JsonObject | None = None) -> None:
        ended = [FinishedRun(run.id, ok, error="" if ok else "broken", wall=wall or {}) for run in runs]
        await self.do(lambda session: settle_runs(session, ended))

    async def anneal(self) -> list[tuple[str, str]]:
        """Run everything that can run until nothing can. Returns each (short node name, role) in its order."""
        done: list[tuple[str, str]] = []
        while runs := await self.claim():
            await self.finish(*runs)
            done += [(_short(run.node), run.role) for run in runs]
        return done

    # --- questions

    async def at(self, node: str, role: str) -> NodeRoleRecord:
        where = "WHERE split_part(n.name, '.', 1) = :node AND r.name = :role"
        found = await self.noderoles(where, node=node, role=role)
        assert len(found) == 1, f"{role} on {node}: {found}"
        return found[0]

    async def noderoles(self, where: str, **values: object) -> list[NodeRoleRecord]:
        async with self.store.read() as session:
            return await select_noderoles(session, where, **values)

    async def on(self, node: str) -> set[str]:
        """The roles bound to a node."""
        found = await self.noderoles("WHERE split_part(n.name, '.', 1) = :node", node=node)
        return {noderole.role for noderole in found}

    async def state(self, node: str, role: str) -> NodeRoleState:
        return (await self.at(node, role)).state

    async def states(self, *places: tuple[str, str]) -> list[NodeRoleState]:
        return [await self.state(node, role) for node, role in places]

    async def parents(self, node: str, role: str) -> set[tuple[str, str]]:
        noderole = await self.at(node, role)
        async with self.store.read() as session:
            return {(_short(parent.node), parent.role) for parent in await select_parents(session, noderole.id)}

    async def staged(self, node: str, role: str) -> JsonObject:
        """What the noderole would be handed if it ran now."""
        noderole = await self.at(node, role)
        async with self.store.read() as session:
            return (await stage_noderoles(session, [noderole.id]))[noderole.id].staged.input

    async def opened(self, node: str, role: str) -> JsonObject:
        """What its jig would be handed: the same with its secrets in the clear."""
        async with self.store.read() as session:
            secret = (await session.catalogue()).catalogue.secret_attribs
        return self.store.vault.open_secrets(secret, await self.staged(node, role))

    async def value(self, node: str, role: str, path: str) -> object:
        """What the noderole would be handed at this place if it ran now."""
        return read_at_path(await self.staged(node, role), path.split("/"))

    async def rows(self, query: str, **values: object) -> list[tuple[object, ...]]:
        async with self.store.read() as session:
            return [tuple(row) for row in await session.rows(query, **values)]

    async def somebody_waits_for_a_lock(self) -> bool:
        """Whether a transaction of this database cannot go on before another one ends."""
        waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return bool(await self.rows(waiting))

    async def everything(self, tables: Sequence[str] = TABLES) -> dict[str, list[str]]:
        """All rows of all tables, to prove that something changed nothing."""
        found = {}
        for table in tables:
            found[table] = [str(row[0]) for row in await self.rows(f"SELECT t::text FROM {table} t ORDER BY 1")]
        return found

    @staticmethod
    def _on(
        deployment: str, work: Callable[[GraphSession, DeploymentRecord], Awaitable[T]]
    ) -> Callable[[GraphSession], Awaitable[T]]:
        async def found(session: GraphSession) -> T:
            return await work(session, await get_deployment(session, deployment, EVERYTHING))

        return found


def _full(node: str) -> str:
    return node if "." in node else f"{node}.rack.example"


def _short(node: str) -> str:
    return node.partition(".")[0]


async def unbroken(rack: Rack) -> None:
    """What must hold after anything: counts of unmet parents are true, and TODO means that all parents are ACTIVE."""
    wrong = await rack.rows(
        """
        SELECT nr.id, nr.state, nr.unmet, real.unmet FROM node_roles nr CROSS JOIN LATERAL (
            SELECT count(*) AS unmet FROM node_role_edges e JOIN node_roles p ON p.id = e.parent_id
            WHERE e.child_id = nr.id AND p.state <> 0) AS real
        WHERE nr.unmet <> real.unmet OR (nr.state = 3 AND real.unmet > 0) OR (nr.state = 2 AND real.unmet = 0)
        """
    )
    assert wrong == []
