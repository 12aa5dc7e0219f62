"""The role-provided jig: `do_transition` in a worker process, with the run's log, deadline and end."""

import asyncio
from dataclasses import replace

from tests.support.clock import pass_time
from tests.support.processes import is_alive
from tests.support.servers.hooked_barclamps import Hooked
from tests.support.waiting import until

from rackwright.annealer.role_transitions import RoleTransitions
from rackwright.domain.runs import Answer, Run
from rackwright.jigs.role_provided import RoleProvidedJig

ROLES = """
- {name: own-work, jig: role-provided, template: {speed: 3}}
- {name: no-work, jig: role-provided}
"""

CODE = """
class OwnWork(RoleHooks):
    role = "own-work"
    def do_transition(self, noderole):
        print("I am", os.getpid(), flush=True)
        if (NOTES.with_name("hang")).exists():
            time.sleep(3600)
        if (NOTES.with_name("fail")).exists():
            return Outcome.failure("out of luck")
        print("done ä")
        return Outcome.success({"speed_was": noderole.input["speed"], "node": noderole.node.name})
"""


async def _run_of(hooked: Hooked, role: str = "own-work") -> tuple[RoleProvidedJig, Run]:
    rack = hooked.rack
    await hooked.load(ROLES, CODE)
    await rack.node("n1")
    await rack.anneal()
    await rack.deployment("web")
    await rack.deploy("web", ("n1", role))
    [run] = await rack.claim()
    return RoleProvidedJig(RoleTransitions(rack.store, hooked.workers, hooked.files)), run


async def test_what_it_returns_is_the_outcome_and_what_it_prints_the_log(hooked: Hooked) -> None:
    jig, run = await _run_of(hooked)
    output: list[str] = []
    outcome = await jig.run(run, output.append)
    assert (outcome.answer, outcome.wall) == (Answer.SUCCEEDED, {"speed_was": 3, "node": "n1.rack.example"})
    assert "".join(output).endswith("done ä\n")
    hooked.notes.with_name("fail").touch()
    failed = await jig.run(run, output.append)
    assert (failed.answer, failed.error) == (Answer.FAILED, "out of luck")


async def test_a_role_without_do_transition_fails_with_the_way_out(hooked: Hooked) -> None:
    jig, run = await _run_of(hooked, "no-work")
    outcome = await jig.run(run, print)
    assert outcome.answer is Answer.FAILED
    assert "roles.py" in outcome.error


async def test_past_its_deadline_or_cancelled_its_process_is_gone(hooked: Hooked) -> None:
    jig, run = await _run_of(hooked)
    hooked.notes.with_name("hang").touch()
    output: list[str] = []
    late = asyncio.create_task(jig.run(replace(run, deadline=3600.0), output.append))
    await until(lambda: "\n" in "".join(output), "the transition is at work")
    pass_time(3600)
    assert (await late).error == "own-work: not finished within 3600 s"
    await until(lambda: not is_alive(_pid_told(output)), "the late one is gone")
    output.clear()
    cancelled = asyncio.create_task(jig.run(replace(run, deadline=3600.0), output.append))
    await until(lambda: "\n" in "".join(output), "the transition is at work again")
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    await until(lambda: not is_alive(_pid_told(output)), "the cancelled one is gone")


def _pid_told(output: list[str]) -> int:
    return int("".join(output).split()[2])
