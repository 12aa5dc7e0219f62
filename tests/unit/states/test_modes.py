"""Random graphs of states: every mode keeps every requisite and comes to the same end, and `genius` merges all it can.

The states write to a world of their own, kept in a dictionary, so that "the same end" is something to compare.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rackwright.states.catalogue import Catalogue
from rackwright.states.module import Argument, Arguments, Check, Context, Resource, Result, StateError, StateFunction
from rackwright.states.plan import Plan, build_plan
from rackwright.states.reading.tree import Tree
from rackwright.states.refusal import RunRefused
from rackwright.states.running.execution import PlanExecution
from rackwright.states.running.record import Report, StateOutcome


class World(Catalogue):
    """Modules `pkg` and `world` that change a dictionary and count how often packages were installed."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, str] = {}
        self.transactions = 0
        arguments = (
            Argument("key", required=True),
            Argument("value", required=True),
            Argument("bad", "bool", default=False),
        )
        self._made = {
            "world": {
                "set": StateFunction("set", "", arguments, self._check, self._apply, self._watch, None, self._writes)
            },
            "pkg": {
                "installed": StateFunction(
                    "installed", "", arguments, self._check, self._install, None, None, self._writes, self._batch
                )
            },
        }

    def functions(self, module: str) -> dict[str, StateFunction] | None:
        return self._made.get(module) or super().functions(module)

    def _writes(self, arguments: Arguments) -> list[Resource]:
        return [Resource("key", arguments["key"])]

    def _check(self, arguments: Arguments, context: Context) -> Check:
        old = self.values.get(arguments["key"])
        return Check({} if old == arguments["value"] else {"old": old, "new": arguments["value"]}, "")

    def _apply(self, arguments: Arguments, check: Check, context: Context) -> Result:
        if arguments["bad"]:
            raise StateError("told to fail")
        self.values[arguments["key"]] = arguments["value"]
        return Result(True, check.changes, "")

    def _watch(self, arguments: Arguments, context: Context) -> Result:
        with context.lock:
            key = "seen by " + arguments["key"]
            self.values[key] = str(int(self.values.get(key, "0")) + 1)
        return Result(True, {"watched": len(context.changed)}, "")

    def _install(self, arguments: Arguments, check: Check, context: Context) -> Result:
        with context.lock:
            self.transactions += 1
        return self._apply(arguments, check, context)

    def _batch(self, many: Sequence[Arguments], context: Context) -> list[Result]:
        with context.lock:
            self.transactions += 1
        if any(arguments["bad"] for arguments in many):
            return [Result(False, {}, "one of them is bad") for _ in many]
        return [self._apply(arguments, self._check(arguments, context), context) for arguments in many]


KINDS = (
    "require",
    "require_any",
    "watch",
    "watch_any",
    "onchanges",
    "onchanges_any",
    "onfail",
    "onfail_all",
    "prereq",
    "listen",
)


@st.composite
def trees(draw: st.DrawFn, packages_fail: bool = True) -> dict[str, Any]:
    """An SLS of up to a dozen states; requisites point anywhere, so some of these trees are refused."""
    count = draw(st.integers(2, 12))
    tree: dict[str, Any] = {}
    for number in range(count):
        function = draw(st.sampled_from(["world.set", "pkg.installed", "pkg.installed"]))
        bad = draw(st.integers(0, 7)) == 0 and (packages_fail or function == "world.set")
        key = draw(st.sampled_from("abcdefgh")) if function == "world.set" else f"pkg-{draw(st.integers(0, 9))}"
        items: list[dict[str, Any]] = [{"key": key}, {"value": draw(st.sampled_from("xyz"))}, {"bad": bad}]
        for _ in range(draw(st.integers(0, 2))):
            kind = draw(st.sampled_from(KINDS))
            if kind == "listen" and function != "world.set":
                continue
            target = (
                draw(st.integers(0, count - 1))
                if kind in ("listen", "prereq")
                else draw(st.integers(0, max(0, number - 1)))
            )
            if target != number:
                items.append({kind: [f"s{target}"]})
        tree[f"s{number}"] = {function: items}
    return tree


def go(tree: dict[str, Any], mode: str) -> tuple[World, PlanExecution, Plan, Report]:
    world = World()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "init.sls").write_text(json.dumps(tree))
        plan = build_plan(Tree(Path(folder)), ["init"], {}, {}, world)
        run = PlanExecution(plan, mode)
        return world, run, plan, run.execute()


def requisites_kept(plan: Plan, report: Report) -> None:
    done = {record.state: record for record in report.records if not record.id.startswith("listener_")}
    for state in plan.states:
        own = done[state.index]
        if state.index in plan.graph.look and own.outcome in (StateOutcome.SKIPPED, StateOutcome.BLOCKED):
            continue
        for source in plan.graph.incoming(state.index):
            if not plan.graph.is_look(source):
                assert done[source].end <= own.start, f"{state.id} started before {plan.states[source].id} ended"


def outcomes(report: Report) -> dict[str, tuple[str, bool | None]]:
    return {record.id: (record.outcome.value, record.result) for record in report.records}


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trees())
def test_every_mode_keeps_requisites_and_ends_in_the_same_world(tree: dict[str, Any]) -> None:
    try:
        expected, _, plan, report = go(tree, "ansible")
    except RunRefused:
        return
    requisites_kept(plan, report)
    for mode in ("justdoit", "genius"):
        world, _, other, other_report = go(tree, mode)
        requisites_kept(other, other_report)
        assert world.values == expected.values
        assert outcomes(other_report) == outcomes(report)


def longest_chain(plan: Plan) -> int:
    """The most packages on one path: each of them needs a transaction of its own."""
    order = PlanExecution(plan, "justdoit").schedule
    waiting, deepest = order.waiting_counts(), [0] * len(order.units)
    ready = [unit for unit, count in enumerate(waiting) if not count]
    while ready:
        unit = ready.pop()
        vertex = order.units[unit][0]
        state = plan.states[plan.graph.owner[vertex]]
        if state.module == "pkg" and not plan.graph.is_look(vertex):
            deepest[unit] += 1
        for following in order.successors(unit):
            deepest[following] = max(deepest[following], deepest[unit])
            waiting[following] -= 1
            if not waiting[following]:
                ready.append(following)
    return max(deepest, default=0)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trees(packages_fail=False))
def test_genius_runs_no_more_package_transactions_than_the_longest_chain_needs(tree: dict[str, Any]) -> None:
    # A package that something must be done before (prereq) stays on its own, so those trees say nothing here.
    tree = {k: {f: [i for i in items if "prereq" not in i] for f, items in body.items()} for k, body in tree.items()}
    try:
        world, _, plan, _ = go(tree, "genius")
    except RunRefused:
        return
    assert world.transactions <= longest_chain(plan)


def test_genius_falls_back_to_single_packages_when_the_merged_transaction_fails() -> None:
    tree = {name: {"pkg.installed": [{"key": name}, {"value": "1"}, {"bad": name == "b"}]} for name in ("a", "b", "c")}
    world, _, _, report = go(tree, "genius")
    assert {record.id: record.outcome.value for record in report.records} == {
        "a": "changed",
        "b": "failed",
        "c": "changed",
    }
    assert world.values == {"a": "1", "c": "1"}
    assert world.transactions == 4


def test_genius_explains_what_it_merged() -> None:
    tree = {name: {"pkg.installed": [{"key": name}, {"value": "1"}]} for name in ("a", "b")}
    _, run, _, _ = go(tree, "genius")
    assert run.schedule.explanation == ["one pkg.installed transaction for 'a', 'b': there is no path between them"]


def test_writers_of_one_key_stay_in_file_order_in_every_mode() -> None:
    tree = {f"s{n}": {"world.set": [{"key": "one"}, {"value": str(n)}]} for n in range(40)}
    for mode in ("ansible", "justdoit", "genius"):
        assert go(tree, mode)[0].values == {"one": "39"}


class Services(Catalogue):
    """A `service` module that counts how often it restarted something."""

    def __init__(self) -> None:
        super().__init__()
        self.restarts: list[str] = []
        running = StateFunction(
            "running",
            "",
            (),
            lambda arguments, context: Check({}, "runs"),
            lambda arguments, check, context: Result(True, {}, ""),
            self._restart,
            resources=lambda arguments: [Resource("service", arguments["name"])],
        )
        self._made = {"service": {"running": running}}

    def functions(self, module: str) -> dict[str, StateFunction] | None:
        return self._made.get(module) or super().functions(module)

    def _restart(self, arguments: Arguments, context: Context) -> Result:
        self.restarts.append(arguments["name"])
        return Result(True, {"restarted": True}, "restarted")


def restarts(tree: dict[str, Any], mode: str) -> tuple[list[str], Report]:
    services = Services()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "init.sls").write_text(json.dumps(tree))
        return services.restarts, PlanExecution(
            build_plan(Tree(Path(folder)), ["init"], {}, {}, services), mode
        ).execute()


CONFIGURED: dict[str, Any] = {"conf1": {"test.succeed_with_changes": []}, "conf2": {"test.succeed_with_changes": []}}


def test_genius_restarts_a_service_once_where_nothing_waits_in_between() -> None:
    for requisite in ("watch", "listen"):
        tree = {
            **CONFIGURED,
            "s1": {"service.running": [{"name": "nginx"}, {requisite: [{"test": "conf1"}]}]},
            "s2": {"service.running": [{"name": "nginx"}, {requisite: [{"test": "conf2"}]}]},
            "s3": {"service.running": [{"name": "other"}, {requisite: [{"test": "conf2"}]}]},
        }
        assert sorted(restarts(tree, "justdoit")[0]) == ["nginx", "nginx", "other"]
        done, report = restarts(tree, "genius")
        assert sorted(done) == ["nginx", "other"]
        reacted = {record.id: bool(record.changes) for record in report.records if record.changes}
        assert {name.replace("listener_", "") for name in reacted} >= {"s1", "s2", "s3"}


def test_genius_does_not_join_restarts_across_a_state_that_needs_the_first() -> None:
    tree = {
        **CONFIGURED,
        "s1": {"service.running": [{"name": "nginx"}, {"watch": [{"test": "conf1"}]}]},
        "between": {"test.nop": [{"require": [{"service": "s1"}]}]},
        "s2": {
            "service.running": [{"name": "nginx"}, {"watch": [{"test": "conf2"}]}, {"require": [{"test": "between"}]}]
        },
    }
    assert restarts(tree, "genius")[0] == ["nginx", "nginx"]
