"""Installs without the races of seed 001: each has a test, with the real server parts and machines spoken for by hand.

Time passes by moving what is stored, never by waiting.
"""

import asyncio
from functools import partial

import pytest
from tests.support.rack import ADMIN, refused, unbroken
from tests.support.servers.install_site import DATABASE, DISCOVERED, INSTALL, INSTALLED, OS, HandMachine, Site
from tests.support.waiting import until

from rackwright.annealer.installs import InstallAdvancer
from rackwright.domain.errors import Rule
from rackwright.domain.graph.why import Cause
from rackwright.domain.machines.install import ENDED, Stage
from rackwright.domain.runs import Run
from rackwright.domain.states import ACTIVE, ERROR, TODO, TRANSITION, Trigger
from rackwright.server.composition import NO_NODE
from rackwright.store.db.locks import INSTALL_LOCK
from rackwright.store.db.session import Session
from rackwright.store.graph.noderoles import retry_noderole
from rackwright.store.machines import install_attempts
from rackwright.store.machines.nodes import delete_node, update_node
from rackwright.store.runs import run_lifecycle
from rackwright.store.runs.claims import Claimant, claim_runs
from rackwright.store.settings import write_setting

OPEN_STAGES = [stage for stage in Stage if stage not in ENDED]
SOME_STAGES = [Stage.PUBLISHING, Stage.INSTALLING, Stage.PROBING]
SECOND = "198.51.100.7"


async def _deployed(site: Site) -> HandMachine:
    [machine] = await site.deployed(1)
    return machine


async def _run_id(site: Site, machine: HandMachine) -> int:
    found = (await site.rack.at(machine.short, INSTALL)).run_id
    assert found is not None
    return found


async def _late(site: Site, machine: HandMachine) -> None:
    """Let the deadline of a machine's install pass."""
    run = await _run_id(site, machine)
    await site.change(
        lambda session: session.run(
            "UPDATE runs SET started_at = started_at - interval '2 hours' WHERE id = :id", id=run
        )
    )


async def _reinstall(site: Site, machine: HandMachine) -> None:
    noderole = await site.rack.at(machine.short, INSTALL)
    await site.change(lambda session: retry_noderole(session, noderole.id, Trigger.REINSTALL))


# --- the whole way


async def test_an_install_is_active_only_after_the_server_looked_itself(site: Site) -> None:
    machine = await _deployed(site)
    for stage in OPEN_STAGES:
        await site.reach_stage(machine, stage)
        assert await site.rack.state(machine.short, INSTALL) is TRANSITION
        assert await site.alive(machine) == (stage is Stage.WAITING)
    assert site.bmc.times("look") == 0
    await site.reach_stage(machine, Stage.DONE)
    assert site.bmc.times("look") == 1
    assert await site.rack.state(machine.short, INSTALL) is ACTIVE
    assert await site.alive(machine)
    assert await machine.what_to_boot() == "local"


async def test_the_other_noderoles_run_again_after_an_install_and_the_install_does_not(site: Site) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, Stage.DONE)
    ran = await site.anneal()
    assert (machine.short, DISCOVERED) in ran
    assert (machine.short, INSTALLED) in ran
    assert (machine.short, INSTALL) not in ran
    assert {await site.rack.state(machine.short, role) for role in await site.rack.on(machine.short)} == {ACTIVE}
    await unbroken(site.rack)


async def test_the_config_is_what_was_frozen_and_progress_is_shown(site: Site) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, Stage.INSTALLING)
    secret = site.secrets[machine.name]
    config = await machine.config(secret)
    assert (config.status_code, config.json()["os"]) == (200, OS)
    assert (await machine.progress(secret, "bootloader")).status_code == 204
    assert "bootloader" in (await site.why(machine)).text
    assert await site.events("install.progress") == 1


async def test_nothing_else_starts_on_a_machine_while_it_is_installed(site: Site) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, Stage.INSTALLING)
    await site.rack.deployment("more", "web")
    await site.rack.deploy("more", (machine.name, "test-milestone"))
    assert await site.rack.state(machine.short, "test-milestone") is TODO
    assert (machine.short, "test-milestone") not in await site.anneal()


# --- reboot before DHCP is updated


async def test_no_machine_reboots_before_every_boot_provider_serves_its_installer(site: Site) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, Stage.PUBLISHING)
    for _ in range(3):
        assert await site.look() == []
    assert site.bmc.asked == []
    reason = await site.why(machine)
    assert reason.cause is Cause.BOOT_PROVIDER
    assert f"{DATABASE} on {ADMIN}" in reason.text
    await site.anneal()
    assert await site.look() == ["reboot"]
    assert site.bmc.asked == [(machine.name, "boot network"), (machine.name, "reset")]


async def test_a_provider_that_served_only_an_older_generation_is_not_enough(site: Site) -> None:
    machines = await site.deployed(1, 2)
    await site.step()
    await site.change(lambda session: write_setting(session, "max_installs", 1))
    await site.installs.advance()
    begun = [one for one in machines if await site.stage(one) is Stage.PUBLISHING]
    [first], [second] = begun, [one for one in machines if one not in begun]  # claimed at once, they are in no order
    await site.anneal()
    await site.change(lambda session: write_setting(session, "max_installs", 2))
    assert await site.look() == ["reboot"]
    assert [await site.stage(one) for one in (first, second)] == [Stage.REBOOTING, Stage.PUBLISHING]
    assert await site.look() == []
    assert site.bmc.asked[-1] == (first.name, "reset")


async def test_a_machine_that_reboots_by_itself_too_early_gets_no_secret(site: Site) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, Stage.PUBLISHING)
    assert await machine.what_to_boot() == f"{OS}-install"
    assert (await machine.fetch_secret()).status_code == 404
    assert await site.stage(machine) is Stage.PUBLISHING
    await site.reach_stage(machine, Stage.DONE)


async def test_a_provider_on_a_node_that_is_down_is_not_waited_for(site: Site) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, Stage.PUBLISHING)
    await site.change(lambda session: session.run("UPDATE nodes SET alive = false WHERE admin"))
    assert await site.look() == ["reboot"]


# --- reports that are late, doubled, or of an earlier boot


async def test_a_doubled_success_changes_nothing(site: Site) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, Stage.BOOTING)
    secret = site.secrets[machine.name]
    assert (await machine.result(secret)).status_code == 409
    assert (await machine.result(secret, ok=False)).status_code == 409
    assert await site.stage(machine) is Stage.BOOTING
    await site.reach_stage(machine, Stage.DONE)


async def test_a_boot_report_that_comes_twice_is_taken_once(site: Site) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, Stage.PROBING)
    assert (await machine.heartbeat("local")).status_code == 204
    assert await site.look() == ["probe"]
    await site.anneal()
    assert (await machine.heartbeat("local")).status_code == 204
    assert await site.anneal() == []


@pytest.mark.parametrize("stage", OPEN_STAGES, ids=str)
async def test_a_heartbeat_of_the_boot_before_the_install_changes_nothing(site: Site, stage: Stage) -> None:
    machine = await _deployed(site)
    before = machine.boot_id
    await site.reach_stage(machine, stage)
    assert (await machine.heartbeat("sledgehammer", boot_id=before)).status_code == 204
    assert (await machine.heartbeat("local", boot_id=before)).status_code == 204
    assert await site.stage(machine) is stage
    assert await site.alive(machine) == (stage is Stage.WAITING)
    await site.reach_stage(machine, Stage.DONE)
    assert (await machine.heartbeat("sledgehammer", boot_id=before)).status_code == 204
    [(boot, bootenv)] = await site.rack.rows(
        "SELECT boot_id, observed_bootenv FROM nodes WHERE name = :name", name=machine.name
    )
    assert (boot, bootenv) == (machine.boot_id, "local")


async def test_a_local_boot_before_the_success_report_is_no_success(site: Site) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, Stage.INSTALLING)
    machine.new_boot()
    await machine.heartbeat("local")
    assert await site.stage(machine) is Stage.INSTALLING
    assert not await site.alive(machine)


async def test_the_secret_of_a_finished_attempt_is_refused(site: Site) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, Stage.DONE)
    secret = site.secrets[machine.name]
    await site.anneal()
    for answer in (
        await machine.config(secret),
        await machine.progress(secret),
        await machine.result(secret, ok=False),
    ):
        assert answer.status_code == 409
    assert await site.rack.state(machine.short, INSTALL) is ACTIVE


async def test_the_secret_of_an_earlier_attempt_is_of_no_use_in_the_next(site: Site) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, Stage.INSTALLING)
    old = site.secrets[machine.name]
    assert (await machine.result(old, ok=False, error="no disk")).status_code == 204
    assert "no disk" in await site.error(machine)
    machine.new_boot()
    await machine.register()
    await site.anneal()
    await _reinstall(site, machine)
    await site.step()
    await site.reach_stage(machine, Stage.INSTALLING)
    assert (await machine.result(old)).status_code == 409
    assert await site.stage(machine) is Stage.INSTALLING
    await site.reach_stage(machine, Stage.DONE)


async def test_a_secret_that_nobody_has_is_not_found(site: Site) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, Stage.INSTALLING)
    assert (await machine.result("guessed")).status_code == 404


# --- the secret


@pytest.mark.parametrize("source", ["", SECOND])
@pytest.mark.parametrize("stage", [Stage.INSTALLING, Stage.BOOTING, Stage.PROBING], ids=str)
async def test_a_second_fetch_of_the_secret_alarms_and_fails_the_install(site: Site, stage: Stage, source: str) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, stage)
    assert (await machine.fetch_secret(source)).status_code == 404
    assert await site.stage(machine) is Stage.FAILED
    assert await site.rack.state(machine.short, INSTALL) is ERROR
    assert (source or machine.address) in await site.error(machine)
    assert await site.events("install.alarm") == 1
    assert await machine.what_to_boot() == "sledgehammer"


async def test_the_secret_is_of_no_use_from_another_address(site: Site) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, Stage.INSTALLING)
    secret = site.secrets[machine.name]
    assert (await machine.config(secret, SECOND)).status_code == 409
    assert (await machine.result(secret, source=SECOND)).status_code == 409
    assert await site.stage(machine) is Stage.INSTALLING


async def test_the_secret_is_stored_only_as_a_hash_and_told_to_no_event(site: Site) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, Stage.INSTALLING)
    await machine.progress(site.secrets[machine.name])
    everything = await site.rack.everything(("install_attempts", "events", "runs", "run_logs", "nodes"))
    assert site.secrets[machine.name] not in str(everything)


# --- failures


@pytest.mark.parametrize("stage", OPEN_STAGES, ids=str)
async def test_past_its_deadline_an_install_fails_with_the_stage_it_reached(site: Site, stage: Stage) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, stage)
    await _late(site, machine)
    await site.change(run_lifecycle.fail_overdue_runs)
    await site.look()
    assert await site.rack.state(machine.short, INSTALL) is ERROR
    assert f"as far as {stage}" in await site.error(machine)
    assert "within 3600 s" in await site.error(machine)
    assert not (await machine.what_to_boot()).endswith("-install")


@pytest.mark.parametrize("stage", OPEN_STAGES, ids=str)
async def test_after_a_failed_install_no_boot_installs_again_until_a_person_says_so(site: Site, stage: Stage) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, stage)
    await _late(site, machine)
    await site.look()
    machine.new_boot()
    assert not (await machine.what_to_boot()).endswith("-install")
    assert (await machine.register()).status_code == 201
    await site.anneal()
    await site.look()
    assert await site.rack.state(machine.short, INSTALL) is ERROR
    assert not (await machine.what_to_boot()).endswith("-install")
    assert await site.alive(machine)
    await _reinstall(site, machine)
    await site.step()
    await site.reach_stage(machine, Stage.DONE)


async def test_power_lost_while_installing_ends_at_the_deadline_in_sledgehammer(site: Site) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, Stage.INSTALLING)
    machine.new_boot()
    assert await machine.what_to_boot() == "sledgehammer"
    await machine.register()
    assert await site.stage(machine) is Stage.INSTALLING
    assert not await site.alive(machine)
    await _late(site, machine)
    await site.look()
    assert await site.rack.state(machine.short, INSTALL) is ERROR
    await machine.heartbeat()
    assert await site.alive(machine)
    assert (machine.short, DISCOVERED) in await site.anneal(), "its boot counts now that no install owns it"


async def test_power_lost_before_the_secret_was_fetched_just_boots_the_installer_again(site: Site) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, Stage.REBOOTING)
    machine.new_boot()
    assert await machine.what_to_boot() == f"{OS}-install"
    await site.reach_stage(machine, Stage.DONE)


async def test_power_lost_after_the_first_boot_from_disk_is_no_failure(site: Site) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, Stage.PROBING)
    site.bmc.boots[machine.name] = machine.new_boot()
    await machine.heartbeat("local")
    assert await site.look() == ["probe"]
    assert await site.rack.state(machine.short, INSTALL) is ACTIVE


async def test_a_probe_that_finds_another_system_fails_the_install(site: Site) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, Stage.PROBING)
    site.bmc.boots[machine.name] = "somebody-else"
    await site.look()
    assert await site.rack.state(machine.short, INSTALL) is ERROR
    assert "somebody-else" in await site.error(machine)
    assert await machine.what_to_boot() == "local"


async def test_a_probe_that_gets_no_answer_is_tried_again_at_the_next_look(site: Site) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, Stage.PROBING)
    site.bmc.broken = True
    assert await site.look() == ["probe"]
    assert await site.stage(machine) is Stage.PROBING
    site.bmc.broken = False
    assert await site.look() == ["probe"]
    assert await site.stage(machine) is Stage.DONE


# --- people, while it installs


@pytest.mark.parametrize("stage", OPEN_STAGES, ids=str)
async def test_a_cancelled_install_ends_at_once_and_its_secret_with_it(site: Site, stage: Stage) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, stage)
    run = await _run_id(site, machine)
    await site.change(lambda session: run_lifecycle.cancel_run(session, run))
    assert not (await machine.what_to_boot()).endswith("-install")
    assert (await machine.fetch_secret()).status_code == 404
    if machine.name in site.secrets:
        assert (await machine.result(site.secrets[machine.name])).status_code == 409
    await site.anneal()
    await site.look()
    assert await site.rack.state(machine.short, INSTALL) is ERROR
    assert "cancelled by tester" in await site.error(machine)


async def test_a_cancelled_install_can_be_started_again_at_once(site: Site) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, Stage.REBOOTING)
    run = await _run_id(site, machine)
    await site.change(lambda session: run_lifecycle.cancel_run(session, run))
    await machine.heartbeat()
    await _reinstall(site, machine)
    await site.step()
    assert await site.stage(machine) is Stage.WAITING
    await site.reach_stage(machine, Stage.DONE)


@pytest.mark.parametrize("stage", SOME_STAGES, ids=str)
async def test_a_commit_while_installing_changes_neither_this_install_nor_starts_another(
    site: Site, stage: Stage
) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, stage)
    await site.rack.propose("web")
    await site.rack.set_role_data("web", INSTALL, {"provisioner": {"target_os": "rocky-9"}})
    await site.rack.commit("web")
    await site.reach_stage(machine, Stage.DONE)
    assert (machine.short, INSTALL) not in await site.anneal()
    assert await site.rack.state(machine.short, INSTALL) is ACTIVE
    assert await site.rack.rows("SELECT target_os FROM install_attempts") == [(OS,)]


@pytest.mark.parametrize("stage", SOME_STAGES, ids=str)
async def test_neither_retry_nor_reinstall_touches_an_install_under_way(site: Site, stage: Stage) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, stage)
    noderole = await site.rack.at(machine.short, INSTALL)
    for trigger in (Trigger.RETRY, Trigger.REINSTALL):
        with refused(Rule.NOT_RETRYABLE, INSTALL, machine.name):
            await site.change(partial(retry_noderole, id=noderole.id, trigger=trigger))
    assert await site.stage(machine) is stage


async def test_a_finished_install_is_not_retried_but_a_person_may_reinstall(site: Site) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, Stage.DONE)
    await site.anneal()
    noderole = await site.rack.at(machine.short, INSTALL)
    with refused(Rule.DESTRUCTIVE, INSTALL):
        await site.change(lambda session: retry_noderole(session, noderole.id))
    await _reinstall(site, machine)
    await site.step()
    await site.reach_stage(machine, Stage.DONE)
    assert site.bmc.times("reset") == 2


@pytest.mark.parametrize("stage", [Stage.PUBLISHING, Stage.INSTALLING, Stage.BOOTING], ids=str)
async def test_a_rollback_that_takes_the_install_away_lets_it_end_first(site: Site, stage: Stage) -> None:
    machine = await site.discovered(1)
    await site.rack.deployment("web")
    await site.rack.deploy("web", (machine.name, "test-milestone"))
    bare = (await site.rack.record("web")).head_id
    assert bare is not None
    await site.anneal()
    await site.rack.deploy("web", (machine.name, INSTALLED))
    await site.reach_stage(machine, stage)
    await site.rack.rollback("web", bare)
    await site.rack.commit("web")
    assert (await site.rack.at(machine.short, INSTALL)).doomed
    await site.reach_stage(machine, Stage.DONE)
    await site.anneal()
    assert INSTALL not in await site.rack.on(machine.short)
    assert await site.alive(machine)
    await unbroken(site.rack)


@pytest.mark.parametrize("stage", SOME_STAGES, ids=str)
async def test_a_node_cannot_be_removed_while_it_is_installed_but_after_a_cancel(site: Site, stage: Stage) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, stage)
    with refused(Rule.BUSY, machine.name):
        await site.change_graph(lambda session: delete_node(session, machine.name))
    run = await _run_id(site, machine)
    await site.change(lambda session: run_lifecycle.cancel_run(session, run))
    await site.change_graph(lambda session: delete_node(session, machine.name))
    await site.look()
    assert await site.rack.rows("SELECT 1 FROM install_attempts") == []
    assert await machine.what_to_boot() == "sledgehammer", "it is a stranger again"


async def test_what_was_to_be_done_to_a_node_that_is_gone_is_moot(site: Site) -> None:
    machine = await _deployed(site)
    await site.reach_stage(machine, Stage.PUBLISHING)
    await site.anneal()
    [action] = await site.installs.advance()
    run = await _run_id(site, machine)
    await site.change(lambda session: run_lifecycle.cancel_run(session, run))
    await site.change_graph(lambda session: delete_node(session, machine.name))
    await site.installs.act(action)
    assert site.bmc.asked == []


# --- many, and servers that die


async def test_ten_installs_under_a_full_cap_of_ten_get_their_dhcp_run(site: Site) -> None:
    machines = await site.deployed(*range(1, 11))
    await site.step(cap=10)
    assert {await site.stage(machine) for machine in machines} == {Stage.WAITING}
    others = [f"busy{number}" for number in range(10)]
    for name in others:
        await site.rack.node(name, alive=False)
    # The databases of addresses and names take the new nodes in, one after the other since they are on one node.
    while (await site.step(cap=10)).ran:
        pass
    for name in others:
        node_id = await site.rack.node_id(name)
        await site.change(partial(update_node, name_or_id=node_id, changes={"alive": True}))
    busy = await site.change(lambda session: claim_runs(session, Claimant("another server", NO_NODE), 10))
    assert len(busy.started) >= 10, "the cap is full"
    await site.installs.advance()
    assert {await site.stage(machine) for machine in machines} == {Stage.PUBLISHING}
    assert [one.run.role for one in (await site.step(cap=10)).ran] == [DATABASE]
    assert await site.look() == ["reboot"] * 10


async def test_no_more_installs_run_at_once_than_max_installs(site: Site) -> None:
    machines = await site.deployed(1, 2, 3)
    await site.change(lambda session: write_setting(session, "max_installs", 2))
    await site.step()
    await site.look()
    stages = {machine: str(await site.stage(machine)) for machine in machines}
    assert sorted(stages.values()) == [Stage.PUBLISHING, Stage.PUBLISHING, Stage.WAITING]
    first, _, last = sorted(machines, key=lambda machine: stages[machine])  # three claimed at once are in no order
    assert "as many installs as may run at once" in (await site.why(last)).text
    assert await site.alive(last)
    for stage in (Stage.INSTALLING, Stage.BOOTING, Stage.PROBING):
        await site.reach_stage(first, stage)
        await site.look() if stage is not Stage.PROBING else None
        assert await site.stage(last) is Stage.WAITING
    await site.reach_stage(first, Stage.DONE)
    await site.look()
    assert await site.stage(last) is Stage.PUBLISHING


async def test_two_servers_that_look_at_once_begin_no_more_than_max_installs(site: Site) -> None:
    machines = await site.deployed(1, 2, 3, 4)
    await site.change(lambda session: write_setting(session, "max_installs", 1))
    other = InstallAdvancer(site.server.store, site.installs.reach)
    first, *rest = machines
    await site.step(cap=1)

    async def between(session: Session) -> None:
        """One server has begun the first and not committed yet when the others become installs too."""
        await install_attempts.advance_attempts(session, 1)
        looking = asyncio.create_task(other.advance())
        await site.step()
        await until(site.rack.somebody_waits_for_a_lock, "the other server waits for the one that counts")
        assert not looking.done()
        waiting.append(looking)

    waiting: list[asyncio.Task[object]] = []
    await site.server.store.change(between, actor="first server", lock=INSTALL_LOCK)
    await asyncio.gather(*waiting)
    assert [await site.stage(one) for one in machines].count(Stage.PUBLISHING) == 1
    assert await site.stage(first) is Stage.PUBLISHING
    assert len(rest) == 3


async def test_a_server_restart_at_each_stage_harms_nothing(site: Site) -> None:
    machine = await _deployed(site)
    for stage in (*OPEN_STAGES, Stage.DONE):
        await site.restart()
        await site.reach_stage(machine, stage)
    await site.restart()
    await site.anneal()
    assert await site.rack.state(machine.short, INSTALL) is ACTIVE
    assert (site.bmc.times("reset"), site.bmc.times("look")) == (1, 1)


async def test_a_worker_that_dies_before_it_opened_the_attempt_did_nothing_and_it_runs_again(site: Site) -> None:
    machine = await _deployed(site)
    [run] = await _claimed(site)
    await _dead(site, run.id)
    assert await site.rack.state(machine.short, INSTALL) is TODO
    await site.reach_stage(machine, Stage.DONE)


async def test_a_worker_that_dies_after_it_opened_the_attempt_is_not_missed(site: Site) -> None:
    machine = await _deployed(site)
    [run] = await _claimed(site)
    outcome = await site.server.jigs["os-install"].run(run, lambda _: None)
    assert outcome.answer == "accepted"
    await _dead(site, run.id)
    assert await site.rack.state(machine.short, INSTALL) is TRANSITION
    await site.reach_stage(machine, Stage.DONE)


async def test_a_worker_that_lost_its_run_opens_no_attempt(site: Site) -> None:
    machine = await _deployed(site)
    [asleep] = await _claimed(site)
    await _dead(site, asleep.id)
    await site.reach_stage(machine, Stage.DONE)
    with refused(Rule.BUSY, INSTALL):
        await site.server.jigs["os-install"].run(asleep, lambda _: None)
    assert await site.rack.rows("SELECT count(*) FROM install_attempts") == [(1,)]


async def _claimed(site: Site) -> list[Run]:
    return (await site.change(lambda session: claim_runs(session, Claimant("doomed server"), 10))).started


async def _dead(site: Site, run_id: int) -> None:
    """The worker of a run died, and its lease is over."""

    async def work(session: Session) -> list[int]:
        await session.run("UPDATE runs SET lease_until = now() - interval '1 second' WHERE id = :id", id=run_id)
        return await run_lifecycle.take_over_lost_runs(session)

    await site.change(work)
