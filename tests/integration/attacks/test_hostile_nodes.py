"""One hostile node: whatever a machine, or a script that runs on it, answers, no server ends and no other node notices.

A taken-over machine that was accepted answers the server's looks over SSH, and what its scripts write is stored. Here
it sends made-up seals, text that no database takes, and documents too deep to be walked.
"""

import asyncio
import logging
from dataclasses import replace

import pytest
from tests.support.servers.install_site import HandMachine, Site
from tests.support.waiting import until

from rackwright.annealer import reachability, silent_machines
from rackwright.annealer.annealer import Annealer, Pace
from rackwright.annealer.installs import Reach
from rackwright.annealer.logs import RunLogs
from rackwright.annealer.silent_machines import MachineWatch
from rackwright.annealer.step import execute_run
from rackwright.domain.catalogue import JsonObject
from rackwright.domain.machines.install import LOCAL
from rackwright.domain.runs import Answer, Outcome, Run
from rackwright.domain.sealed import FINGERPRINT, SEAL
from rackwright.hammers.base import BootedSystem, HammerNode
from rackwright.jigs.base import Jig
from rackwright.reach.run_log import Log
from rackwright.store.machines.nodes import update_node
from rackwright.store.runs.claims import claim_runs
from rackwright.store.runs.settling import FinishedRun

MADE_UP: JsonObject = {SEAL: "1:AAAA", FINGERPRINT: "00"}


async def installed(site: Site, number: int) -> HandMachine:
    """An accepted machine that runs an installed system, and was not heard of for a while."""
    machine = await site.discovered(number)
    await site.rack.do(
        lambda session: session.run(
            "UPDATE nodes SET observed_bootenv = :local, seen_at = now() - interval '1 hour' WHERE name = :name",
            local=LOCAL,
            name=machine.name,
        )
    )
    return machine


async def minutes_silent(site: Site, machine: HandMachine) -> float:
    [(seconds,)] = await site.rack.rows(
        "SELECT extract(epoch FROM now() - seen_at) FROM nodes WHERE name = :name", name=machine.name
    )
    return float(str(seconds)) / 60


class Probe:
    """Every machine answers its own boot id; those in `answers` what they are told to."""

    def __init__(self, machines: list[HandMachine], answers: dict[str, object]) -> None:
        self.boots = {machine.name: machine.boot_id for machine in machines}
        self.answers = answers

    async def look(self, node: HammerNode) -> BootedSystem:
        answer = self.answers.get(node.name)
        if isinstance(answer, Exception):
            raise answer
        return BootedSystem(answer if isinstance(answer, str) else self.boots[node.name])


async def ask_all(site: Site, probe: Probe) -> None:
    reach = Reach(hammer=lambda _: site.bmc, probe=lambda _: probe)
    await MachineWatch(site.server.store, reach, heartbeat=10).ask(alive=True)


async def test_a_made_up_seal_in_what_a_machine_found_out_keeps_nobody_else_from_being_asked(site: Site) -> None:
    hostile, neighbour = [await installed(site, number) for number in (1, 2)]
    discovery: JsonObject = {"bmc": {"kind": "redfish", "password": MADE_UP}}
    await site.change(lambda session: update_node(session, hostile.name, {"discovery": discovery}))
    await ask_all(site, Probe([hostile, neighbour], {}))
    assert await minutes_silent(site, neighbour) < 30


@pytest.mark.parametrize("boot_id", ["a\0b", "", "x" * 65, "'; DROP TABLE nodes --"])
async def test_a_boot_id_that_is_none_keeps_nobody_else_from_being_asked(site: Site, boot_id: str) -> None:
    hostile, neighbour = [await installed(site, number) for number in (1, 2)]
    await ask_all(site, Probe([hostile, neighbour], {hostile.name: boot_id}))
    assert await minutes_silent(site, hostile) > 30
    assert await minutes_silent(site, neighbour) < 30


async def test_a_probe_that_breaks_on_one_machine_is_told_and_the_others_are_asked(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    hostile, neighbour = [await installed(site, number) for number in (1, 2)]
    with caplog.at_level(logging.ERROR):
        await ask_all(site, Probe([hostile, neighbour], {hostile.name: KeyError("boot_id")}))
    assert "KeyError" in caplog.text
    assert await minutes_silent(site, neighbour) < 30


class NeverAnswering(Probe):
    """Who is in `answers` is waited for in vain."""

    async def look(self, node: HammerNode) -> BootedSystem:
        if node.name in self.answers:
            await asyncio.Event().wait()
        return await super().look(node)


async def watch_until_asked(site: Site, probe: Probe, machine: HandMachine) -> None:
    """Have the watch work as in a server, until it has asked the machine."""
    reach = Reach(hammer=lambda _: site.bmc, probe=lambda _: probe)
    task = asyncio.create_task(MachineWatch(site.server.store, reach, heartbeat=0.05).run())

    async def asked() -> bool:
        return await minutes_silent(site, machine) < 30

    try:
        await until(asked, f"{machine.name} was asked")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_silent_machines_that_are_waited_for_keep_no_living_one_from_being_asked(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silent_machines, "MAX_CONCURRENT_PROBES", 1)
    silent, neighbour = [await installed(site, number) for number in (1, 2)]
    await site.change(lambda session: update_node(session, silent.name, {"alive": False}))
    await watch_until_asked(site, NeverAnswering([silent, neighbour], {silent.name: None}), neighbour)
    assert await site.alive(neighbour)


async def test_a_living_machine_that_never_answers_is_waited_for_only_so_long(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silent_machines, "MAX_CONCURRENT_PROBES", 1)
    monkeypatch.setattr(reachability, "PROBE_SECONDS", 0.2)
    hostile, neighbour = [await installed(site, number) for number in (1, 2)]
    await watch_until_asked(site, NeverAnswering([hostile, neighbour], {hostile.name: None}), neighbour)
    assert await site.alive(neighbour)


class Returning(Jig):
    """A jig whose runs all end like this one."""

    def __init__(self, outcome: Outcome, log: str = "") -> None:
        self.outcome = outcome
        self.log = log
        self.inputs: list[JsonObject] = []

    async def run(self, run: Run, log: Log) -> Outcome:
        self.inputs.append(run.input)
        log(self.log)
        return self.outcome


RUN = Run(1, 1, 1, "n1.rack.example", "test-parent", "test", "returning", {}, deadline=60.0)


@pytest.mark.parametrize(
    "wall", [{"a": MADE_UP}, {"a": "\0"}, {"a": ["\ud800"]}, {"a": float("nan")}], ids=["seal", "nul", "half", "nan"]
)
async def test_a_script_that_writes_what_cannot_be_stored_has_failed_and_its_noderole_says_why(
    site: Site, wall: JsonObject
) -> None:
    jig = Returning(Outcome.success(wall))
    outcome = await execute_run(site.server.store, {"returning": jig}, RUN, lambda text: None)
    assert outcome.answer is Answer.FAILED
    assert outcome.wall == {}
    assert "refused" in outcome.error


async def test_a_made_up_seal_in_a_runs_input_is_not_opened_and_stops_nothing(site: Site) -> None:
    """It lies where no attrib is declared secret, so it is data like any other."""
    jig = Returning(Outcome.success())
    run = replace(RUN, input={"somewhere": {"else": MADE_UP}})
    outcome = await execute_run(site.server.store, {"returning": jig}, run, lambda text: None)
    assert outcome.answer is Answer.SUCCEEDED
    assert jig.inputs == [{"somewhere": {"else": MADE_UP}}]


async def test_a_made_up_seal_where_a_secret_belongs_fails_that_run_alone(site: Site) -> None:
    jig = Returning(Outcome.success())
    run = replace(RUN, input={"bmc": {"password": MADE_UP}})
    outcome = await execute_run(site.server.store, {"returning": jig}, run, lambda text: None)
    assert outcome.answer is Answer.FAILED
    assert "secret" in outcome.error
    assert jig.inputs == []


async def test_a_result_that_the_database_refuses_fails_its_own_run_and_no_other(site: Site) -> None:
    hostile, neighbour = [await site.discovered(number) for number in (1, 2)]
    await site.rack.deployment("web")
    await site.rack.deploy("web", *((machine.name, "test-parent") for machine in (hostile, neighbour)))
    claimed = await site.change(lambda session: claim_runs(session, site.server.claimant, 10))
    runs = {run.node: run.id for run in claimed.started if run.role == "test-parent"}
    annealer = Annealer(site.server.store, site.server.jigs, site.server.claimant, Pace(back_off=0.01))
    annealer._finished = [
        FinishedRun(runs[hostile.name], ok=False, error="no text: \0"),
        FinishedRun(runs[neighbour.name], wall={"found": "something"}),
    ]
    task = asyncio.create_task(annealer.run())

    async def ended() -> bool:
        rows = await site.rack.rows(
            "SELECT 1 FROM runs WHERE id = ANY (:ids) AND ended_at IS NULL", ids=[*runs.values()]
        )
        return not rows

    await until(ended, "both runs are over")
    annealer.stop()
    await task
    refused = await site.rack.at(hostile.short, "test-parent")
    assert "cannot be stored" in refused.error
    [(state,)] = await site.rack.rows("SELECT state FROM runs WHERE id = :id", id=runs[neighbour.name])
    assert state == "succeeded"


async def test_output_that_is_no_text_is_shown_as_text_and_holds_no_other_log_back(site: Site) -> None:
    await site.discovered(1)
    logs = RunLogs(site.server.store)
    [(run_id,)] = await site.rack.rows("SELECT max(id) FROM runs")
    with logs.writer(int(str(run_id))) as write, logs.writer(2**40) as write_of_a_run_that_is_gone:
        write("a NUL \0 and half a pair \ud800\n")
        write_of_a_run_that_is_gone("nobody's\n")
    await logs.flush()
    [(text,)] = await site.rack.rows("SELECT string_agg(text, '') FROM run_logs WHERE run_id = :id", id=run_id)
    assert str(text).endswith("a NUL ␀ and half a pair ?\n")
