"""Drives the store on a real PostgreSQL and the naive model of `naive.py` together at random, and compares them.

After each step they must agree on the verdict, on every noderole, edge, cohort, snapshot and input.
`HYPOTHESIS_PROFILE=thorough` looks longer; `HYPOTHESIS_PROFILE=random` looks elsewhere each time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from random import Random
from typing import Any, TypeVar

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import StaticPool
from tests.integration.store.model import model_checks, naive
from tests.integration.store.model.dice import Dice, integers, lists, pairs, sampled_from
from tests.integration.store.model.model_catalogues import (
    Declaration,
    amended,
    as_product,
    declared,
    importable,
    layers,
)
from tests.integration.store.model.model_dry_runs import dry_runs, shape
from tests.integration.store.model.model_profiles import CHOSEN
from tests.integration.store.model.model_seen import Seen, look
from tests.integration.store.model.naive_graph import ACTIVE, TRANSITION, Key, RefusedByModel
from tests.integration.store.model.naive_inputs import staged
from tests.support.servers.postgres import administer

from rackwright.domain.errors import Conflict, DigestRequired, NotFound
from rackwright.domain.states import Trigger
from rackwright.store.barclamp_import import import_barclamps
from rackwright.store.bootstrap import first_start
from rackwright.store.db.database import Database, read_connections
from rackwright.store.db.session import GraphSession
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph import commits, snapshots
from rackwright.store.graph.binding import bind_proposed
from rackwright.store.graph.deployments import create_deployment, delete_deployment, get_deployment
from rackwright.store.graph.noderoles import retry_noderole
from rackwright.store.machines.nodes import NewNode, create_node, delete_node, move_node, record_boot, update_node
from rackwright.store.runs.claims import Claimant, claim_runs
from rackwright.store.runs.settling import FinishedRun, settle_runs
from rackwright.store.store import Store

T = TypeVar("T")

_databases = count(1)

SEED = st.integers(2**100, 2**100 + 2**64)
"""So large that no number in any source is among them: Hypothesis tries those of all modules that are loaded, and then
what is looked at would depend on which other tests run beside this one."""

STEPS = {
    "bind": 7,
    "bind_and_commit": 9,
    "commit": 5,
    "work": 8,
    "claim": 5,
    "settle": 8,
    "unbind": 6,
    "edit_binding": 3,
    "edit_role": 3,
    "plan": 2,
    "propose": 1,
    "recall": 2,
    "discard": 1,
    "rollback": 3,
    "add_node": 2,
    "remove_node": 2,
    "shift_node": 2,
    "change_node": 4,
    "reboot": 3,
    "add_deployment": 1,
    "remove_deployment": 1,
    "retry": 4,
    "reimport": 2,
    "settle_too_late": 1,
}
"""What a step may be, and how often."""


class Both(RuleBasedStateMachine):
    """Does each step to the store and to the naive model."""

    server: str
    template: str

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.name = f"model_{next(_databases)}"
        administer(self.server, f"CREATE DATABASE {self.name} TEMPLATE {self.template} STRATEGY file_copy")
        # One connection: the steps come one after the other.
        url = make_url(self.server).set(database=self.name)
        self.database = Database(create_async_engine(url, poolclass=StaticPool), url, read_connections(url))
        self.store = Store(self.database)
        self.world = naive.World()
        self.numbers = count(1)
        self.plans: dict[str, tuple[str, naive.Plan]] = {}
        self.runs: dict[Key, int] = {}
        self.committed: dict[int, object] = {}
        self.seen = Seen()
        self.declaration = Declaration()
        self.verdict = "done"
        """The store's verdict on the last step: the rule by which it refused, or `done`."""

    def teardown(self) -> None:
        self.loop.run_until_complete(self.database.close())
        self.loop.close()
        administer(self.server, f"DROP DATABASE {self.name} WITH (FORCE)")

    # --- doing and looking

    def really(self, work: Callable[[GraphSession], Awaitable[T]]) -> T:
        return self.loop.run_until_complete(self.store.change_graph(work))

    def both(self, work: Callable[[GraphSession], Awaitable[T]], change_model: Callable[[], object]) -> T | None:
        """Do the same to both; they must agree on whether it may be done, and if not, on the rule."""
        verdict = expected = "done"
        answer: T | None = None
        try:
            answer = self.really(work)
        except Conflict as error:
            verdict = error.rule.value
        except DigestRequired:
            verdict = "digest-required"
        except NotFound:
            verdict = "not-found"
        try:
            change_model()
        except RefusedByModel as refused:
            expected = refused.rule
        self.verdict = verdict
        assert verdict == expected, f"the store says {verdict!r}, the naive model {expected!r}"
        self.seen = self.loop.run_until_complete(look(self.store))
        return answer

    def node_id(self, node: str) -> int:
        return self.seen.node_ids[node]

    # --- the start

    def fresh(self, seed: int) -> Random:
        """Return random choices for a step: its number makes another seed of one that Hypothesis repeats."""
        return Random(f"{seed} {next(self.numbers)}")

    @initialize(seed=SEED)
    def start(self, seed: int) -> None:
        dice = Dice(self.fresh(seed))
        declaration = dice.draw(declared())
        self.loop.run_until_complete(first_start(self.store, [], "admin.example"))
        self.world.create_node("admin.example", admin=True, alive=True)
        self.do_import(declaration)
        if not self.declaration.roles:
            self.do_import(importable(declaration))
        for _ in range(3):
            self.add_machine(admin=False, alive=True)
        for _ in range(2):
            self.add_deployment(dice)

    @rule(seed=SEED)
    def step(self, seed: int) -> None:
        random = self.fresh(seed)
        what = random.choices(list(STEPS), list(STEPS.values()))[0]
        note(f"{what}")
        getattr(self, what)(Dice(random))

    def do_import(self, declaration: Declaration) -> None:
        async def work(session: GraphSession) -> None:
            await import_barclamps(session, [as_product(declaration)])

        def change_model() -> None:
            self.world.import_barclamp(declaration.roles, declaration.attribs, declaration.clients)
            self.declaration = declaration

        self.both(work, change_model)

    def reimport(self, dice: Dice) -> None:
        self.do_import(dice.draw(amended(self.declaration)))

    # --- nodes

    def add_node(self, dice: Dice) -> None:
        if len(self.machines()) < 6:
            self.add_machine(dice.one_in(4), not dice.one_in(4))

    def add_machine(self, admin: bool, alive: bool) -> None:
        name = f"n{next(self.numbers)}.example"
        self.both(
            lambda session: create_node(session, NewNode(name, admin=admin, alive=alive)),
            lambda: self.world.create_node(name, admin, alive),
        )

    def machines(self) -> list[str]:
        return [node.name for node in self.world.nodes.values() if not node.system]

    def a_machine(self, dice: Dice) -> str:
        return dice.draw(sampled_from(self.machines()))

    def remove_node(self, dice: Dice) -> None:
        node = self.a_machine(dice)
        self.both(lambda session: delete_node(session, node), lambda: self.world.delete_node(node))

    def shift_node(self, dice: Dice) -> None:
        node, home = self.a_machine(dice), self.a_deployment(dice)
        self.both(lambda session: move_node(session, node, home), lambda: self.world.move_node(node, home))

    def change_node(self, dice: Dice) -> None:
        node = self.a_machine(dice)
        what = dice.draw(sampled_from(("alive", "available", "hint", "discovery", "address")))
        if what in ("alive", "available"):
            changes: dict[str, Any] = {what: not dice.one_in(3)}
        elif what == "address":
            changes = {dice.draw(sampled_from(("discovery", "hint"))): {"address": dice.draw(sampled_from("ab"))}}
        else:
            changes = {what: dice.draw(layers())}
        self.both(lambda session: update_node(session, node, changes), lambda: self.world.set_node(node, changes))

    def reboot(self, dice: Dice) -> None:
        node = self.a_machine(dice)
        boot = f"boot {next(self.numbers)}"
        self.both(lambda session: record_boot(session, self.node_id(node), boot), lambda: self.world.boot(node))

    # --- deployments and their snapshots

    def a_deployment(self, dice: Dice, *, proposed: bool = False) -> str:
        """Choose a deployment, rarely `system`, of which most things are refused."""
        homes = [home for home in self.world.deployments.values() if home.name != "system"]
        fitting = [home.name for home in homes if not proposed or home.proposal() is not None]
        if not fitting or dice.one_in(20):
            fitting = sorted(self.world.deployments)
        return dice.draw(sampled_from(fitting))

    def both_in(
        self, deployment: str, work: Callable[[GraphSession, Any], Awaitable[T]], change_model: Callable[[], object]
    ) -> T | None:
        """As `both`, for work in a deployment."""

        async def work_in(session: GraphSession) -> T:
            return await work(session, await get_deployment(session, deployment, EVERYTHING))

        return self.both(work_in, change_model)

    def open_for_edits(self, name: str) -> None:
        if name != "system" and self.world.deployments[name].proposal() is None:
            self.both_in(name, snapshots.propose, lambda: self.world.propose(name))

    def add_deployment(self, dice: Dice) -> None:
        if len(self.world.deployments) < 5:
            parent = dice.draw(sampled_from(sorted(self.world.deployments)))
            name = f"d{next(self.numbers)}"
            self.both(
                lambda session: create_deployment(session, name, parent),
                lambda: self.world.create_deployment(name, parent),
            )

    def remove_deployment(self, dice: Dice) -> None:
        name = self.a_deployment(dice)
        self.both(lambda session: delete_deployment(session, name), lambda: self.world.delete_deployment(name))

    def propose(self, dice: Dice) -> None:
        name = self.a_deployment(dice)
        self.both_in(name, snapshots.propose, lambda: self.world.propose(name))

    def recall(self, dice: Dice) -> None:
        name = self.a_deployment(dice)
        self.both_in(name, snapshots.recall, lambda: self.world.recall(name))

    def discard(self, dice: Dice) -> None:
        name = self.a_deployment(dice, proposed=True)
        self.both_in(name, snapshots.discard, lambda: self.world.discard(name))

    def bind(self, dice: Dice) -> str:
        name = self.a_deployment(dice)
        nodes = [node for node in self.machines() if self.world.nodes[node].deployment in self.world.path(name)]
        if not nodes or dice.one_in(8):
            nodes = list(self.world.nodes)
        requests_choice = pairs(sampled_from(nodes), sampled_from(list(self.world.roles)))
        requests = dice.draw(lists(requests_choice, 1, 3))
        self.open_for_edits(name)
        id_requests = [(self.node_id(n), r) for n, r in requests]
        # All requests together come last, so that they are planned as if nothing had been tried before them.
        tried = self.loop.run_until_complete(
            dry_runs(self.store, name, [*([requests_choice] for requests_choice in id_requests), id_requests])
        )
        plan = self.both_in(
            name,
            lambda session, home: bind_proposed(session, home, id_requests),
            lambda: self.world.bind(name, requests),
        )
        assert tried[-1] == (self.verdict if plan is None else shape(plan)), "the dry run said something else"
        return name

    def bind_and_commit(self, dice: Dice) -> None:
        self.do_commit(dice, self.bind(dice))

    def unbind(self, dice: Dice) -> None:
        keys = [key for key, noderole in self.world.noderoles.items() if noderole.deployment != "system"]
        if keys:
            chosen = dice.draw(lists(sampled_from(keys), 1, 2))
            name = self.world.noderoles[chosen[0]].deployment
            self.open_for_edits(name)
            ids = [self.seen.noderoles[key].id for key in chosen]
            self.both_in(
                name,
                lambda session, home: snapshots.unbind(session, home, ids),
                lambda: self.world.unbind(name, chosen),
            )

    def edit_role(self, dice: Dice) -> None:
        name = self.a_deployment(dice)
        self.open_for_edits(name)
        proposal = self.world.deployments[name].proposal()
        role = dice.draw(sampled_from([*proposal.roles] if proposal and proposal.roles else ["r0"]))
        says = dice.draw(layers())
        self.both_in(
            name,
            lambda session, home: snapshots.set_role_data(session, home, role, says),
            lambda: self.world.set_role_data(name, role, says),
        )

    def edit_binding(self, dice: Dice) -> None:
        name = self.a_deployment(dice)
        self.open_for_edits(name)
        proposal = self.world.deployments[name].proposal()
        if proposal and proposal.bindings:
            node, role = dice.draw(sampled_from([*proposal.bindings]))
            says = dice.draw(layers())
            if node in self.world.nodes:
                self.both_in(
                    name,
                    lambda session, home: snapshots.set_binding_data(session, home, self.node_id(node), role, says),
                    lambda: self.world.set_binding_data(name, (node, role), says),
                )

    def plan(self, dice: Dice) -> None:
        self.do_plan(self.a_deployment(dice, proposed=True))

    def do_plan(self, name: str) -> None:
        expected: list[naive.Plan] = []
        planned = self.both_in(name, commits.plan_proposal_commit, lambda: expected.append(self.world.plan(name)))
        if planned is not None:
            model_checks.compare_plans(planned, expected[0])
            self.plans[name] = (planned.digest, expected[0])

    def commit(self, dice: Dice) -> None:
        self.do_commit(dice, self.a_deployment(dice, proposed=True))

    def do_commit(self, dice: Dice, name: str) -> None:
        """Commit, mostly right after reading the plan; at times with an earlier plan, or with none."""
        if not dice.one_in(4):
            self.plans.pop(name, None)
            self.do_plan(name)
        digest, seen = self.plans.get(name, (None, None))
        expected: list[naive.Plan] = []
        before = self.seen.noderoles
        planned = self.both_in(
            name,
            lambda session, home: commits.commit_proposal(session, home, digest),
            lambda: expected.append(self.world.commit(name, seen)),
        )
        if planned is not None:
            model_checks.compare_plans(planned, expected[0])
            again = {key for key, noderole in before.items() if noderole.state == ACTIVE and self.left_active(key)}
            assert again <= expected[0].rerun | expected[0].held_back, "more ran again than was planned"

    def left_active(self, key: Key) -> bool:
        return key in self.seen.noderoles and self.seen.noderoles[key].state != ACTIVE

    def rollback(self, dice: Dice) -> None:
        name = self.a_deployment(dice)
        line = self.world.deployments[name].snapshots
        past_numbers = [number for number, snapshot in enumerate(line) if snapshot.state != "proposed"]
        if not past_numbers:
            return
        if self.world.deployments[name].proposal() is not None and not dice.one_in(4):
            self.both_in(name, snapshots.discard, lambda: self.world.discard(name))
        number = dice.draw(sampled_from(past_numbers))
        past = self.world.deployments[name].snapshots[number]
        id = self.seen.snapshots[name][number].id
        answer = self.both_in(
            name,
            lambda session, home: snapshots.rollback(session, home, id),
            lambda: self.world.rollback(name, number),
        )
        if answer is not None:
            model_checks.compare_intent(self.seen, self.world, name, past, set(answer.not_restorable))

    # --- work

    def claim(self, dice: Dice) -> None:
        self.do_claim(dice.draw(integers(1, 6)))

    def do_claim(self, limit: int) -> None:
        runnable = self.world.runnable()
        cap = limit + len(self.running())
        work = self.really(lambda session: claim_runs(session, Claimant("test"), cap))
        keys = {noderole.id: key for key, noderole in self.seen.noderoles.items()}
        started = {keys[run.node_role_id]: run for run in work.started}
        settled = {keys[id] for id in work.unchanged}
        assert started.keys() | settled <= runnable
        slots = [key if self.world.nodes[key[0]].system else key[0] for key in [*started, *settled]]
        assert len(slots) == len(set(slots)), "two at once in one slot"
        every = {key if self.world.nodes[key[0]].system else key[0] for key in runnable}
        assert len(slots) == min(limit, len(every)), "something that could run was left out"
        model_checks.same(settled, {key for key in [*started, *settled] if self.world.unchanged(key)})
        for key, run in started.items():
            expected = staged(self.world, key, wall=True)
            assert run.input == expected, f"{key} was handed {run.input}, not {expected}"
            self.runs[key] = run.id
        for key in [*started, *settled]:
            self.world.claim(key)
        self.seen = self.loop.run_until_complete(look(self.store))

    def running(self) -> list[Key]:
        return [key for key, noderole in self.world.noderoles.items() if noderole.state == TRANSITION]

    def settle(self, dice: Dice) -> None:
        if self.running():
            key = dice.draw(sampled_from(self.running()))
            self.do_settle(key, not dice.one_in(4), dice.draw(layers()))

    def do_settle(self, key: Key, ok: bool, wall: dict[str, Any]) -> None:
        run_id = self.runs[key]
        self.both(
            lambda session: settle_runs(session, [FinishedRun(run_id, ok, wall=wall)]),
            lambda: self.world.settle(key, ok, wall),
        )

    def settle_too_late(self, dice: Dice) -> None:
        """Settle a run that is over, which changes nothing."""
        over = [id for key, id in self.runs.items() if key not in self.running()]
        if over:
            run_id = dice.draw(sampled_from(over))
            self.both(lambda session: settle_runs(session, [FinishedRun(run_id, wall={"late": 1})]), lambda: None)

    def work(self, dice: Dice) -> None:
        """Let all that can run succeed, for a few rounds."""
        for _ in range(dice.draw(integers(1, 6))):
            self.do_claim(9)
            running = self.running()
            for key in running:
                self.do_settle(key, True, self.world.noderoles[key].wall)
            if not running:
                break

    def retry(self, dice: Dice) -> None:
        if self.world.noderoles:
            key = dice.draw(sampled_from(list(self.world.noderoles)))
            reinstall = dice.one_in(2)
            trigger = Trigger.REINSTALL if reinstall else Trigger.RETRY
            self.both(
                lambda session: retry_noderole(session, self.seen.noderoles[key].id, trigger),
                lambda: self.world.retry(key, reinstall),
            )

    # --- what must hold after each step

    @invariant()
    def holds(self) -> None:
        model_checks.agree(self.seen, self.world)
        model_checks.nodes_and_intent_agree(self.seen, self.world)
        model_checks.committed_snapshots_never_change(self.seen, self.committed)
        model_checks.counters_are_true(self.seen)
        model_checks.todo_means_that_all_parents_are_active(self.seen)
        model_checks.nobody_shares_a_node_or_a_line_with_whom_it_must_not(self.world)
        model_checks.active_means_it_ran_with_the_inputs_it_has_now(self.world)


def test_the_store_does_what_the_naive_model_does(postgres_server: str, migrated_template: str) -> None:
    machine = type("Machine", (Both,), {"server": postgres_server, "template": migrated_template})
    run_state_machine_as_test(machine, settings=CHOSEN)
