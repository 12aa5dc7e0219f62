"""The store on a real PostgreSQL and the naive model of `naive.py`, driven together at random; after each step they
must agree on the verdict, on every noderole, edge, cohort, snapshot and input.

`HYPOTHESIS_PROFILE=thorough` looks longer; `HYPOTHESIS_PROFILE=random` looks elsewhere each time.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import StaticPool
from tests.integration.store import naive
from tests.integration.store.model_catalogues import Declared, amended, as_product, declared, layers, without_circles
from tests.integration.store.model_seen import Seen, look
from tests.integration.store.naive_graph import ACTIVE, TRANSITION, Key, Refused, Snapshot
from tests.integration.store.naive_inputs import staged
from tests.support.postgres import administer

from rackwright.domain.errors import Conflict, NotFound
from rackwright.domain.snapshots import CommitPlan
from rackwright.domain.states import Trigger
from rackwright.store import commits, snapshots
from rackwright.store.barclamps import import_barclamps
from rackwright.store.binding import bind_proposed
from rackwright.store.bootstrap import first_start
from rackwright.store.deployments import create_deployment, delete_deployment, get_deployment
from rackwright.store.noderoles import retry
from rackwright.store.nodes import NewNode, boot_node, create_node, delete_node, move_node, update_node
from rackwright.store.runs import Claimant, Finished, claim, settle
from rackwright.store.session import Session, Store

T = TypeVar("T")

_databases = count(1)

PROFILES = {
    "default": settings(max_examples=60, stateful_step_count=35, derandomize=True, phases=[Phase.generate]),
    "random": settings(max_examples=150, stateful_step_count=50, phases=[Phase.generate]),
    "thorough": settings(max_examples=1500, stateful_step_count=60, phases=[Phase.generate, Phase.shrink]),
}
CHOSEN = settings(
    PROFILES[os.environ.get("HYPOTHESIS_PROFILE", "default")],
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


def same(store: set[Any], model: set[Any]) -> None:
    only = sorted(store - model, key=str), sorted(model - store, key=str)
    assert store == model, f"only in the store: {only[0]}; only in the naive model: {only[1]}"


class Both(RuleBasedStateMachine):
    """Does each thing to the store and to the naive model."""

    server: str
    template: str

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.name = f"model_{next(_databases)}"
        administer(self.server, f"CREATE DATABASE {self.name} TEMPLATE {self.template} STRATEGY file_copy")
        # One connection: the steps come one after the other.
        self.engine = create_async_engine(make_url(self.server).set(database=self.name), poolclass=StaticPool)
        self.store = Store(self.engine)
        self.world = naive.World()
        self.numbers = count(1)
        self.plans: dict[str, tuple[str, naive.Plan]] = {}
        self.runs: dict[Key, int] = {}
        self.committed: dict[int, object] = {}
        self.seen = Seen()
        self.said = Declared()

    def teardown(self) -> None:
        self.loop.run_until_complete(self.engine.dispose())
        self.loop.close()
        administer(self.server, f"DROP DATABASE {self.name} WITH (FORCE)")

    # --- doing and looking

    def really(self, work: Callable[[Session], Awaitable[T]]) -> T:
        return self.loop.run_until_complete(self.store.change(work, graph=True))

    def both(self, work: Callable[[Session], Awaitable[T]], told: Callable[[], object]) -> T | None:
        """The same to both; they must agree on whether it may be done, and if not, by which rule."""
        verdict = expected = "done"
        answer: T | None = None
        try:
            answer = self.really(work)
        except Conflict as error:
            verdict = error.rule.value
        except NotFound:
            verdict = "not-found"
        try:
            told()
        except Refused as refused:
            expected = refused.rule
        assert verdict == expected, f"the store says {verdict!r}, the naive model {expected!r}"
        self.seen = self.loop.run_until_complete(look(self.store))
        return answer

    def node_id(self, node: str) -> int:
        return self.seen.node_ids[node]

    # --- the start

    @initialize(said=declared(), data=st.data())
    def start(self, said: Declared, data: st.DataObject) -> None:
        self.loop.run_until_complete(first_start(self.store, [], "admin.example"))
        self.world.create_node("admin.example", admin=True, alive=True)
        self.do_import(said)
        if not self.said.roles:
            self.do_import(without_circles(said))
        for _ in range(data.draw(st.integers(1, 3), "nodes")):
            self.add_node(admin=False, alive=True)
        for _ in range(data.draw(st.integers(1, 2), "deployments")):
            self.add_deployment(data)

    def do_import(self, said: Declared) -> None:
        async def work(session: Session) -> None:
            await import_barclamps(session, [as_product(said)])

        def told() -> None:
            self.world.import_barclamp(said.roles, said.attribs, said.clients)
            self.said = said

        self.both(work, told)

    @rule(data=st.data())
    def reimport(self, data: st.DataObject) -> None:
        if self.said.roles:
            self.do_import(data.draw(amended(self.said), "barclamp"))

    # --- nodes

    @rule(admin=st.sampled_from((False, False, False, True)), alive=st.sampled_from((True, True, False)))
    def add_node(self, admin: bool, alive: bool) -> None:
        name = f"n{next(self.numbers)}.example"
        if len(self.world.nodes) < 9:
            self.both(
                lambda session: create_node(session, NewNode(name, admin=admin, alive=alive)),
                lambda: self.world.create_node(name, admin, alive),
            )

    def machines(self) -> list[str]:
        return [node.name for node in self.world.nodes.values() if not node.system]

    def a_machine(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(self.machines()), "node")

    @precondition(lambda self: self.machines())
    @rule(data=st.data())
    def remove_node(self, data: st.DataObject) -> None:
        node = self.a_machine(data)
        self.both(lambda session: delete_node(session, node), lambda: self.world.delete_node(node))

    @precondition(lambda self: self.machines())
    @rule(data=st.data())
    def shift_node(self, data: st.DataObject) -> None:
        node = self.a_machine(data)
        deployment = self.a_deployment(data)
        self.both(lambda session: move_node(session, node, deployment), lambda: self.world.move_node(node, deployment))

    @precondition(lambda self: self.machines())
    @rule(data=st.data())
    def change_node(self, data: st.DataObject) -> None:
        node = self.a_machine(data)
        what = data.draw(st.sampled_from(("alive", "available", "hint", "discovery", "address")), "field")
        if what in ("alive", "available"):
            changes: dict[str, Any] = {what: data.draw(st.booleans(), what)}
        elif what == "address":
            changes = {"discovery": {"address": data.draw(st.sampled_from("ab"), what)}}
        else:
            changes = {what: data.draw(layers(), what)}
        self.both(lambda session: update_node(session, node, changes), lambda: self.world.set_node(node, changes))

    @precondition(lambda self: self.machines())
    @rule(data=st.data())
    def reboot(self, data: st.DataObject) -> None:
        node = self.a_machine(data)
        boot = f"boot {next(self.numbers)}"
        self.both(lambda session: boot_node(session, self.node_id(node), boot), lambda: self.world.boot(node))

    # --- deployments and their snapshots

    def a_deployment(self, data: st.DataObject) -> str:
        """Rarely `system`, of which most things are refused."""
        names = sorted(self.world.deployments.keys() - {"system"})
        return data.draw(st.sampled_from([*names, *names, "system"]), "deployment")

    def edited(
        self, deployment: str, work: Callable[[Session, Any], Awaitable[T]], told: Callable[[], object]
    ) -> T | None:
        async def found(session: Session) -> T:
            return await work(session, await get_deployment(session, deployment))

        return self.both(found, told)

    @rule(data=st.data())
    def add_deployment(self, data: st.DataObject) -> None:
        parent = data.draw(st.sampled_from(sorted(self.world.deployments)), "parent")
        name = f"d{next(self.numbers)}"
        if len(self.world.deployments) < 5:
            self.both(
                lambda session: create_deployment(session, name, parent),
                lambda: self.world.create_deployment(name, parent),
            )

    @rule(data=st.data())
    def remove_deployment(self, data: st.DataObject) -> None:
        name = self.a_deployment(data)
        self.both(lambda session: delete_deployment(session, name), lambda: self.world.delete_deployment(name))

    @rule(data=st.data())
    def propose(self, data: st.DataObject) -> None:
        name = self.a_deployment(data)
        self.edited(name, snapshots.propose, lambda: self.world.propose(name))

    @rule(data=st.data())
    def recall(self, data: st.DataObject) -> None:
        name = self.a_deployment(data)
        self.edited(name, snapshots.recall, lambda: self.world.recall(name))

    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        name = self.a_deployment(data)
        self.edited(name, snapshots.discard, lambda: self.world.discard(name))

    @precondition(lambda self: self.said.roles)
    @rule(data=st.data())
    def bind(self, data: st.DataObject) -> None:
        name = self.a_deployment(data)
        nodes = st.sampled_from([*self.machines(), *self.machines(), *self.world.nodes])
        roles = st.sampled_from(list(self.world.roles))
        pairs = data.draw(st.lists(st.tuples(nodes, roles), min_size=1, max_size=2), "bindings")
        if name != "system" and self.world.deployments[name].proposal() is None:
            self.edited(name, snapshots.propose, lambda: self.world.propose(name))
        self.edited(
            name,
            lambda session, home: bind_proposed(session, home, [(self.node_id(n), r) for n, r in pairs]),
            lambda: self.world.bind(name, pairs),
        )

    @rule(data=st.data())
    def bind_and_commit(self, data: st.DataObject) -> None:
        if self.said.roles:
            self.bind(data)
            self.commit(data)

    @precondition(lambda self: self.world.noderoles)
    @rule(data=st.data())
    def unbind(self, data: st.DataObject) -> None:
        keys = sorted(self.world.noderoles)
        chosen = data.draw(st.lists(st.sampled_from(keys), min_size=1, max_size=2, unique=True), "noderoles")
        name = self.world.noderoles[chosen[0]].deployment
        if name != "system" and self.world.deployments[name].proposal() is None:
            self.edited(name, snapshots.propose, lambda: self.world.propose(name))
        ids = [self.seen.noderoles[key].id for key in chosen]
        self.edited(
            name, lambda session, home: snapshots.unbind(session, home, ids), lambda: self.world.unbind(name, chosen)
        )

    @rule(data=st.data(), says=layers())
    def edit_role(self, data: st.DataObject, says: dict[str, Any]) -> None:
        name = self.a_deployment(data)
        proposal = self.world.deployments[name].proposal()
        role = data.draw(st.sampled_from(sorted(proposal.roles) if proposal and proposal.roles else ["r0"]), "role")
        self.edited(
            name,
            lambda session, home: snapshots.set_role_data(session, home, role, says),
            lambda: self.world.set_role_data(name, role, says),
        )

    @rule(data=st.data(), says=layers())
    def edit_binding(self, data: st.DataObject, says: dict[str, Any]) -> None:
        name = self.a_deployment(data)
        proposal = self.world.deployments[name].proposal()
        if proposal and proposal.bindings:
            node, role = data.draw(st.sampled_from(sorted(proposal.bindings)), "binding")
            self.edited(
                name,
                lambda session, home: snapshots.set_binding_data(session, home, self.node_id(node), role, says),
                lambda: self.world.set_binding_data(name, (node, role), says),
            )

    @rule(data=st.data())
    def plan(self, data: st.DataObject) -> None:
        self.do_plan(self.a_deployment(data))

    def do_plan(self, name: str) -> None:
        expected: list[naive.Plan] = []
        planned = self.edited(name, commits.plan, lambda: expected.append(self.world.plan(name)))
        if planned is not None:
            self.compare_plans(planned, expected[0])
            self.plans[name] = (planned.digest, expected[0])

    def compare_plans(self, planned: CommitPlan, expected: naive.Plan) -> None:
        for what in ("created", "rerun", "held_back", "removed"):
            lines = {(line.node, line.role) for line in getattr(planned, what)}
            same({(what, *line) for line in lines}, {(what, *key) for key in getattr(expected, what)})
        assert (set(planned.moved), set(planned.wiped)) == (expected.moved, expected.wiped)

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        name = self.a_deployment(data)
        how = data.draw(st.sampled_from(("as planned", "as planned", "as planned", "as seen before", "unseen")), "how")
        if how == "as planned":
            self.plans.pop(name, None)
            self.do_plan(name)
        digest, seen = self.plans.get(name, (None, None)) if how != "unseen" else (None, None)
        expected: list[naive.Plan] = []
        before = dict(self.seen.noderoles)
        planned = self.edited(
            name,
            lambda session, home: commits.commit(session, home, digest),
            lambda: expected.append(self.world.commit(name, seen)),
        )
        if planned is not None:
            self.compare_plans(planned, expected[0])
            again = {key for key, one in before.items() if one.state == ACTIVE and self.left_active(key)}
            assert again <= expected[0].rerun | expected[0].held_back, "more ran again than was planned"

    def left_active(self, key: Key) -> bool:
        return key in self.seen.noderoles and self.seen.noderoles[key].state != ACTIVE

    @rule(data=st.data())
    def rollback(self, data: st.DataObject) -> None:
        name = self.a_deployment(data)
        if not self.world.deployments[name].snapshots:
            return
        number = data.draw(st.integers(0, len(self.world.deployments[name].snapshots) - 1), "snapshot")
        past = self.world.deployments[name].snapshots[number]
        id = self.seen.snapshots[name][number].id
        restored: list[Snapshot] = []
        answer = self.edited(
            name,
            lambda session, home: snapshots.rollback(session, home, id),
            lambda: restored.append(self.world.rollback(name, number)),
        )
        if answer is not None:
            lost = {key for key in past.bindings if key[0] not in self.world.nodes or key[1] not in self.world.roles}
            assert set(answer.not_restorable) == lost
            intent = self.seen.snapshots[name][-1]
            assert {k: v for k, v in intent.bindings.items() if k in past.bindings} == {
                k: v for k, v in past.bindings.items() if k not in lost
            }
            assert {k: v for k, v in intent.roles.items() if k in past.roles} == {
                k: v for k, v in past.roles.items() if k in self.world.roles
            }

    # --- work

    @rule(limit=st.integers(1, 6))
    def claim(self, limit: int) -> None:
        runnable = self.world.runnable()
        cap = limit + len(self.running())
        work = self.really(lambda session: claim(session, Claimant("test"), cap))
        keys = {one.id: key for key, one in self.seen.noderoles.items()}
        started = {keys[run.node_role_id]: run for run in work.started}
        settled = {keys[id] for id in work.unchanged}
        assert started.keys() | settled <= runnable
        slots = [key if self.world.nodes[key[0]].system else key[0] for key in [*started, *settled]]
        assert len(slots) == len(set(slots)), "two at once in one slot"
        every = {key if self.world.nodes[key[0]].system else key[0] for key in runnable}
        assert len(slots) == min(limit, len(every)), "something that could run was left out"
        assert settled == {key for key in [*started, *settled] if self.world.unchanged(key)}
        for key, run in started.items():
            assert run.input == staged(self.world, key, wall=True)
            self.runs[key] = run.id
        for key in [*started, *settled]:
            self.world.claim(key)
        self.seen = self.loop.run_until_complete(look(self.store))

    def running(self) -> list[Key]:
        return sorted(key for key, one in self.world.noderoles.items() if one.state == TRANSITION)

    @precondition(lambda self: self.running())
    @rule(data=st.data(), ok=st.sampled_from((True, True, True, False)), wall=layers())
    def settle(self, data: st.DataObject, ok: bool, wall: dict[str, Any]) -> None:
        key = data.draw(st.sampled_from(self.running()), "noderole")
        self.do_settle(key, ok, wall)

    def do_settle(self, key: Key, ok: bool, wall: dict[str, Any]) -> None:
        run_id = self.runs[key]
        self.both(
            lambda session: settle(session, [Finished(run_id, ok, wall=wall)]),
            lambda: self.world.settle(key, ok, wall),
        )

    @precondition(lambda self: self.over())
    @rule(data=st.data())
    def settle_too_late(self, data: st.DataObject) -> None:
        """The result of a run that is over changes nothing."""
        run_id = data.draw(st.sampled_from(self.over()), "run")
        self.both(lambda session: settle(session, [Finished(run_id, wall={"late": 1})]), lambda: None)

    def over(self) -> list[int]:
        running = self.running()
        return sorted(id for key, id in self.runs.items() if key not in running)

    @rule(rounds=st.integers(1, 8))
    def work(self, rounds: int) -> None:
        """Let all that can run succeed, for a few rounds."""
        for _ in range(rounds):
            self.claim(6)
            running = self.running()
            for key in running:
                self.do_settle(key, True, self.world.noderoles[key].wall)
            if not running:
                break

    @precondition(lambda self: self.world.noderoles)
    @rule(data=st.data(), reinstall=st.booleans())
    def retry(self, data: st.DataObject, reinstall: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.world.noderoles)), "noderole")
        trigger = Trigger.REINSTALL if reinstall else Trigger.RETRY
        self.both(
            lambda session: retry(session, self.seen.noderoles[key].id, trigger),
            lambda: self.world.retry(key, reinstall),
        )

    # --- what must hold after each step

    @invariant()
    def holds(self) -> None:
        self.agree()
        self.nodes_and_intent_agree()
        self.committed_snapshots_never_change()
        self.counters_are_true()
        self.todo_means_that_all_parents_are_active()
        self.nobody_shares_a_node_or_a_line_with_whom_it_must_not()
        self.active_means_it_ran_with_the_inputs_it_has_now()

    def agree(self) -> None:
        noderoles = self.world.noderoles.items()
        same(
            {(key, *one.shown) for key, one in self.seen.noderoles.items()},
            {
                (key, one.deployment, self.world.state(key), self.world.cohort(key), one.doomed)
                for key, one in noderoles
            },
        )
        same(self.seen.edges, {(parent, key) for key, one in noderoles for parent in one.parents})
        same(self.seen.links, {(key, *link) for key, one in noderoles for link in one.links.items()})
        by_age = sorted(self.world.noderoles, key=lambda key: self.world.noderoles[key].born)
        assert by_age == sorted(self.seen.noderoles, key=lambda key: self.seen.noderoles[key].id)

    def nodes_and_intent_agree(self) -> None:
        assert self.seen.homes == {node.name: node.deployment for node in self.world.nodes.values()}
        assert self.seen.held == {one.name for one in self.world.deployments.values() if one.held}
        assert {name: [(s.state, s.roles, s.bindings) for s in line] for name, line in self.seen.snapshots.items()} == {
            name: [(s.state, s.roles, s.bindings) for s in one.snapshots]
            for name, one in self.world.deployments.items()
        }

    def committed_snapshots_never_change(self) -> None:
        for line in self.seen.snapshots.values():
            for one in line:
                if one.state != "proposed":
                    assert self.committed.setdefault(one.id, (one.roles, one.bindings)) == (one.roles, one.bindings)

    def counters_are_true(self) -> None:
        assert self.seen.wrong_counters == []
        assert self.seen.wrong_slots == []

    def todo_means_that_all_parents_are_active(self) -> None:
        parents: dict[Key, list[Key]] = {}
        for parent, child in self.seen.edges:
            parents.setdefault(child, []).append(parent)
        for key, one in self.seen.noderoles.items():
            ready = all(self.seen.noderoles[parent].state == ACTIVE for parent in parents.get(key, ()))
            if one.state in ("todo", "blocked"):
                assert (one.state == "todo") == ready, key

    def nobody_shares_a_node_or_a_line_with_whom_it_must_not(self) -> None:
        for key in self.world.noderoles:
            for other in self.world.noderoles:
                if key[0] == other[0] and key != other:
                    assert not self.world.conflict(key[1], other[1])
                    assert not self.world.provides_each_other(key[1], other[1])
            assert key not in self.world.ancestors(key)
            assert not any(self.world.provides_each_other(key[1], above[1]) for above in self.world.ancestors(key))

    def active_means_it_ran_with_the_inputs_it_has_now(self) -> None:
        for key, one in self.world.noderoles.items():
            if one.state == ACTIVE and not self.world.destroys(key):
                assert one.succeeded_with == staged(self.world, key, wall=False), f"{key} has new inputs, but is active"


def test_the_store_does_what_the_naive_model_does(postgres_server: str, migrated_template: str) -> None:
    machine = type("Machine", (Both,), {"server": postgres_server, "template": migrated_template})
    run_state_machine_as_test(machine, settings=CHOSEN)
