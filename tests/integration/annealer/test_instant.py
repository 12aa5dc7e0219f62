"""Runs that need no time: over within the pass that claims them, and still leaving what every run leaves."""

from dataclasses import dataclass, field

import pytest
from tests.support.rack import Rack, unbroken
from tests.support.servers.hooked_barclamps import Hooked

from rackwright.domain.runs import Outcome, Run
from rackwright.domain.states import ACTIVE, BLOCKED, ERROR, TODO, TRANSITION
from rackwright.store.db.locks import CAP_LOCK
from rackwright.store.graph.noderoles import retry_noderole
from rackwright.store.graph.transitions import mark_dirty
from rackwright.store.runs import instant_runs
from rackwright.store.runs.claims import Claimant, ClaimResult, claim_runs
from rackwright.store.runs.instant_runs import InstantJigs
from rackwright.store.runs.settling import FinishedRun, settle_runs

CHAIN = """
name: chain
roles:
- {name: base, jig: noop, flags: [implicit]}
- {name: middle, jig: noop, requires: [base], flags: [implicit]}
- {name: top, jig: noop, requires: [middle]}
- {name: hub, jig: noop}
- {name: spoke, jig: noop, requires: [hub, base]}
"""


@dataclass
class Line:
    """An annealer's passes, one at a time."""

    rack: Rack
    outcome: Outcome = field(default_factory=Outcome.success)
    runs: list[Run] = field(default_factory=list)

    async def _run(self, run: Run) -> Outcome:
        self.runs.append(run)
        return self.outcome

    async def one_pass(self, cap: int = 10) -> ClaimResult:
        at_once = InstantJigs({"noop"}, self._run)
        return await self.rack.store.change(
            lambda session: claim_runs(session, Claimant("tester"), cap, instant=at_once), lock=CAP_LOCK
        )

    async def until_nothing_is_left(self, cap: int = 10) -> int:
        """How many ended at once."""
        ended = 0
        while (found := await self.one_pass(cap)).more:
            ended += found.ended
        return ended

    async def left(self) -> int:
        [(count,)] = await self.rack.rows("SELECT count(*) FROM node_roles WHERE state <> :active", active=int(ACTIVE))
        return int(str(count))


@pytest.fixture
async def line(rack: Rack) -> Line:
    """Three machines to bind chains to, with all else that there is already ACTIVE."""
    await rack.import_text(CHAIN)
    await rack.deployment("web")
    for number in (1, 2, 3):
        await rack.node(f"n{number}")
    made = Line(rack)
    while found := await rack.claim():
        await rack.finish(*found)
    return made


async def test_a_chain_is_over_in_one_pass(line: Line) -> None:
    await line.rack.deploy("web", ("n1", "top"), ("n2", "top"), ("n3", "top"))
    found = await line.one_pass()
    assert (found.started, found.ended) == ([], 9)
    assert await line.left() == 0
    assert [(run.node, run.role) for run in line.runs if run.node == "n1.rack.example"] == [
        ("n1.rack.example", role) for role in ("base", "middle", "top")
    ]
    await unbroken(line.rack)


async def test_each_run_is_in_the_history_under_the_id_its_jig_saw(line: Line) -> None:
    await line.rack.deploy("web", ("n1", "top"))
    await line.one_pass()
    rows = await line.rack.rows(
        "SELECT run.id, run.node_role_id, run.state, run.attempt, run.worker, run.jig, run.hash = nr.hash,"
        " run.started_at IS NOT NULL AND run.ended_at IS NOT NULL, run.lease_until IS NULL"
        " FROM runs run JOIN node_roles nr ON nr.id = run.node_role_id WHERE run.id = ANY (:ids) ORDER BY run.id",
        ids=[run.id for run in line.runs],
    )
    assert rows == [
        (run.id, run.node_role_id, "succeeded", 1, "tester", "noop", True, True, True)
        for run in sorted(line.runs, key=lambda run: run.id)
    ]


async def test_the_outbox_tells_of_each_state_in_its_order(line: Line) -> None:
    await line.rack.deploy("web", ("n1", "top"))
    await line.one_pass()
    for role, first in (("base", "todo"), ("middle", "blocked"), ("top", "blocked")):
        noderole = await line.rack.at("n1", role)
        kinds = await line.rack.rows(
            "SELECT kind FROM events WHERE kind LIKE 'noderole.%' AND subject_id = :id ORDER BY xid, id", id=noderole.id
        )
        told = [str(kind).removeprefix("noderole.") for (kind,) in kinds]
        expected = [first, *(["todo"] if first == "blocked" else []), "transition", "active"]
        assert told[-len(expected) :] == expected


async def test_what_waits_for_another_machine_follows(line: Line) -> None:
    await line.rack.deploy("web", ("n3", "hub"))
    await line.rack.deploy("web", ("n1", "spoke"), ("n2", "spoke"))
    await line.until_nothing_is_left(cap=1)
    assert await line.left() == 0
    roles = [run.role for run in line.runs]
    assert max(roles.index("hub"), 0) < roles.index("spoke")
    await unbroken(line.rack)


async def test_one_transaction_does_not_grow_without_end(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instant_runs, "MAX_LINES", 3)
    monkeypatch.setattr(instant_runs, "LINE_LENGTH", 2)
    for number in range(12):
        await line.rack.node(f"m{number}")
    while found := await line.rack.claim():
        await line.rack.finish(*found)
    await line.rack.deploy("web", *((f"m{number}", "top") for number in range(12)))
    first = await line.one_pass()
    assert first.ended == instant_runs.LANES * 3 * 2
    assert first.more
    await line.until_nothing_is_left()
    assert await line.left() == 0
    await unbroken(line.rack)


async def test_what_stands_on_two_lines_waits_for_both(line: Line) -> None:
    await line.rack.deploy("web", ("n2", "hub"), ("n1", "spoke"))
    await line.one_pass()
    assert await line.left() == 0 or await line.one_pass()
    roles = [run.role for run in line.runs]
    assert roles.index("spoke") > max(roles.index("hub"), roles.index("base"))
    await unbroken(line.rack)


async def test_what_is_held_is_passed_over_and_what_stands_on_it_waits(line: Line) -> None:
    await line.rack.deployment("part", "web")
    await line.rack.deploy("web", ("n1", "middle"))
    await line.rack.recall("web")
    await line.rack.deploy("part", ("n1", "top"), ("n2", "top"))
    await line.until_nothing_is_left()
    assert {(run.node, run.role) for run in line.runs} == {
        ("n2.rack.example", role) for role in ("base", "middle", "top")
    }
    assert await line.rack.states(("n1", "base"), ("n1", "top")) == [TODO, BLOCKED]
    await unbroken(line.rack)


async def test_one_that_fails_goes_the_ordinary_way(line: Line) -> None:
    await line.rack.deploy("web", ("n1", "top"))
    line.outcome = Outcome.failure("broken on purpose")
    found = await line.one_pass()
    assert [run.role for run in found.started] == ["base"]
    assert await line.rack.state("n1", "base") is TRANSITION
    await line.rack.do(
        lambda session: settle_runs(session, [FinishedRun(found.started[0].id, ok=False, error="broken")])
    )
    assert await line.rack.state("n1", "base") is ERROR
    await unbroken(line.rack)


async def test_one_with_data_goes_the_ordinary_way_and_takes_it_along(line: Line) -> None:
    await line.rack.bind("web", ("n1", "top"), ("n2", "top"))
    await line.rack.set_data("web", "n1", "middle", {"colour": "blue"})
    await line.rack.commit("web")
    started: list[Run] = []
    while (found := await line.one_pass()).more or found.started:
        await line.rack.finish(*found.started)
        started += found.started
    given = {(run.node, run.role): run.input.get("colour") for run in started}
    assert given["n1.rack.example", "middle"] == given["n1.rack.example", "top"] == "blue"
    assert given.get(("n2.rack.example", "top")) is None
    assert await line.left() == 0
    assert "colour" not in {key for run in line.runs for key in run.input}


async def test_the_same_inputs_as_last_time_need_no_run(line: Line) -> None:
    await line.rack.deploy("web", ("n1", "top"))
    await line.one_pass()
    before = len(line.runs)
    noderole = await line.rack.at("n1", "top")
    await line.rack.store.change(lambda session: mark_dirty(session, [noderole.id]))
    found = await line.one_pass()
    assert (found.unchanged, found.ended, len(line.runs)) == ([noderole.id], 0, before)


async def test_a_retried_one_runs_although_its_inputs_are_the_same(line: Line) -> None:
    await line.rack.deploy("web", ("n1", "top"))
    await line.one_pass()
    noderole = await line.rack.at("n1", "top")
    await line.rack.store.change(lambda session: retry_noderole(session, noderole.id))
    assert (await line.one_pass()).ended == 1
    assert line.runs[-1].node_role_id == noderole.id
    await unbroken(line.rack)


async def test_roles_that_want_to_be_told_of_states_are_waited_for(hooked: Hooked) -> None:
    await hooked.load("- {name: told, jig: noop}", 'class Told(RoleHooks):\n    role = "told"\n' + _ON_ACTIVE)
    line = Line(hooked.rack)
    await hooked.rack.node("n1")
    await hooked.rack.deployment("web")
    await hooked.rack.deploy("web", ("n1", "told"))
    started: list[str] = []
    while (found := await line.one_pass()).started:
        await hooked.rack.finish(*found.started)
        started += [run.role for run in found.started]
        assert found.ended == 0
    assert "told" in started


_ON_ACTIVE = "    def on_active(self, noderole):\n        note('on_active', noderole)\n"
