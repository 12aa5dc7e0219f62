"""Installs without the races of seed 001: each has a test, with the real server parts and machines spoken for by hand.

Time passes by moving what is stored, never by waiting.
"""

import asyncio
from functools import partial

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.integration.annealer.install_steps import OPEN_STAGES, deploy_machine, reinstall
from tests.support.machines.signed_registration import public_key
from tests.support.rack import ADMIN, unbroken
from tests.support.servers.install_site import DATABASE, DISCOVERED, INSTALL, INSTALLED, OS, Site
from tests.support.waiting import until

from rackwright.annealer.installs import InstallAdvancer
from rackwright.domain.graph.why import Cause
from rackwright.domain.machines.install import Stage
from rackwright.domain.states import ACTIVE, ERROR, TODO, TRANSITION
from rackwright.server.composition import NO_NODE
from rackwright.store.db.locks import INSTALL_LOCK
from rackwright.store.db.session import Session
from rackwright.store.machines import install_attempts
from rackwright.store.machines.nodes import update_node
from rackwright.store.runs.claims import Claimant, claim_runs
from rackwright.store.settings import write_setting

SECOND = "198.51.100.7"


# --- the whole way


async def test_an_install_is_active_only_after_the_server_looked_itself(site: Site) -> None:
    machine = await deploy_machine(site)
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
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.DONE)
    ran = await site.anneal()
    assert (machine.short, DISCOVERED) in ran
    assert (machine.short, INSTALLED) in ran
    assert (machine.short, INSTALL) not in ran
    assert {await site.rack.state(machine.short, role) for role in await site.rack.on(machine.short)} == {ACTIVE}
    await unbroken(site.rack)


async def test_the_config_is_what_was_frozen_and_progress_is_shown(site: Site) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.INSTALLING)
    secret = site.secrets[machine.name]
    config = await machine.config(secret)
    assert (config.status_code, config.json()["os"]) == (200, OS)
    assert (await machine.progress(secret, "bootloader")).status_code == 204
    assert "bootloader" in (await site.why(machine)).text
    assert await site.events("install.progress") == 1


async def test_nothing_else_starts_on_a_machine_while_it_is_installed(site: Site) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.INSTALLING)
    await site.rack.deployment("more", "web")
    await site.rack.deploy("more", (machine.name, "test-milestone"))
    assert await site.rack.state(machine.short, "test-milestone") is TODO
    assert (machine.short, "test-milestone") not in await site.anneal()


# --- reboot before DHCP is updated


async def test_no_machine_reboots_before_every_boot_provider_serves_its_installer(site: Site) -> None:
    machine = await deploy_machine(site)
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
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.PUBLISHING)
    assert await machine.what_to_boot() == f"{OS}-install"
    assert (await machine.fetch_secret()).status_code == 404
    assert await site.stage(machine) is Stage.PUBLISHING
    await site.reach_stage(machine, Stage.DONE)


async def test_a_provider_on_a_node_that_is_down_is_not_waited_for(site: Site) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.PUBLISHING)
    await site.change(lambda session: session.run("UPDATE nodes SET alive = false WHERE admin"))
    assert await site.look() == ["reboot"]


# --- reports that are late, doubled, or of an earlier boot


async def test_a_doubled_success_changes_nothing(site: Site) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.BOOTING)
    secret = site.secrets[machine.name]
    assert (await machine.result(secret)).status_code == 204, "the answer to the first one may be lost"
    assert (await machine.result(secret, ok=False)).status_code == 409
    assert (await machine.result(secret, source=SECOND)).status_code == 409
    assert await site.stage(machine) is Stage.BOOTING
    assert await site.events("install.booting") == 1
    await site.reach_stage(machine, Stage.DONE)


async def test_a_failure_that_is_told_again_is_answered_as_the_first_time(site: Site) -> None:
    """The server took it and its answer was lost: refused, the machine would boot anew, and come with another key."""
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.INSTALLING)
    secret = site.secrets[machine.name]
    machine.key = Ed25519PrivateKey.generate()
    disks = [{"name": "virtio-HAND", "bytes": 8 << 30}]
    told = {"ok": False, "error": "no file system", "key": public_key(machine.key), "disks": disks}

    async def tell(source: str = "", **other: object) -> int:
        return (await machine.ask("POST", "/api/v2/install/result", told | other, secret, source)).status_code

    async def known() -> object:
        [node] = await site.rack.rows(
            "SELECT key, host_key, discovery, boot_id FROM nodes WHERE name = :name", name=machine.name
        )
        attempts = await site.rack.rows("SELECT stage, error, progress, ended_at FROM install_attempts")
        return node, attempts, await site.rack.rows("SELECT count(*) FROM events"), await site.error(machine)

    assert await tell() == 204
    after_the_first = await known()
    assert await tell() == 204
    assert await tell(disks=[]) == 204, "what is on the disks was taken with the first"
    assert await tell(error="another disk") == 409
    assert await tell(error="") == 409
    assert await tell(ok=True) == 409
    assert await tell(key=public_key(Ed25519PrivateKey.generate())) == 409, "this one would not be let in"
    assert await tell(SECOND) == 409
    assert await known() == after_the_first
    machine.new_boot()
    assert (await machine.register()).status_code == 201, "it stays, to be looked at"


async def test_a_boot_report_that_comes_twice_is_taken_once(site: Site) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.PROBING)
    assert (await machine.heartbeat("local")).status_code == 204
    assert await site.look() == ["probe"]
    await site.anneal()
    assert (await machine.heartbeat("local")).status_code == 204
    assert await site.anneal() == []


@pytest.mark.parametrize("stage", OPEN_STAGES, ids=str)
async def test_a_heartbeat_of_the_boot_before_the_install_changes_nothing(site: Site, stage: Stage) -> None:
    machine = await deploy_machine(site)
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
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.INSTALLING)
    machine.new_boot()
    await machine.heartbeat("local")
    assert await site.stage(machine) is Stage.INSTALLING
    assert not await site.alive(machine)


async def test_the_secret_of_a_finished_attempt_is_refused(site: Site) -> None:
    machine = await deploy_machine(site)
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
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.INSTALLING)
    old = site.secrets[machine.name]
    assert (await machine.result(old, ok=False, error="no disk")).status_code == 204
    assert "no disk" in await site.error(machine)
    machine.new_boot()
    await machine.register()
    await site.anneal()
    await reinstall(site, machine)
    await site.step()
    await site.reach_stage(machine, Stage.INSTALLING)
    assert (await machine.result(old)).status_code == 409
    assert await site.stage(machine) is Stage.INSTALLING
    await site.reach_stage(machine, Stage.DONE)


async def test_a_secret_that_nobody_has_is_not_found(site: Site) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.INSTALLING)
    assert (await machine.result("guessed")).status_code == 404


# --- the secret


@pytest.mark.parametrize("source", ["", SECOND])
@pytest.mark.parametrize("stage", [Stage.INSTALLING, Stage.BOOTING, Stage.PROBING], ids=str)
async def test_a_second_fetch_of_the_secret_alarms_and_fails_the_install(site: Site, stage: Stage, source: str) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, stage)
    assert (await machine.fetch_secret(source)).status_code == 404
    assert await site.stage(machine) is Stage.FAILED
    assert await site.rack.state(machine.short, INSTALL) is ERROR
    assert (source or machine.address) in await site.error(machine)
    assert await site.events("install.alarm") == 1
    assert await machine.what_to_boot() == "sledgehammer"


async def test_a_server_that_ends_while_it_hands_out_the_secret_loses_no_install(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends before it records: one that is killed in between leaves a machine with a secret that is worthless."""
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.REBOOTING)

    async def end(_: object) -> None:
        raise OSError("the database is gone")

    with monkeypatch.context() as broken:
        broken.setattr("rackwright.store.store.refresh_touched_slots", end)
        sent = await machine.fetch_secret()
    assert sent.status_code == 200, "it is on its way"
    assert await site.stage(machine) is Stage.REBOOTING
    assert (await machine.config(sent.text)).status_code == 404
    assert await machine.what_to_boot() == "debian-12-install"
    again = await machine.fetch_secret()
    assert again.text != sent.text
    assert await site.stage(machine) is Stage.INSTALLING
    assert (await machine.config(again.text)).status_code == 200
    assert (await machine.config(sent.text)).status_code == 404
    assert await site.events("install.alarm") == 0


async def test_a_machine_may_use_its_secret_before_that_is_recorded(site: Site) -> None:
    """It is sent before, and the machine may ask any server."""
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.REBOOTING)
    [(node_id,)] = await site.rack.rows("SELECT node_id FROM install_attempts")
    assert isinstance(node_id, int)
    asked: list[asyncio.Task[httpx.Response]] = []

    async def is_waiting() -> bool:
        rows = await site.rack.rows("SELECT 1 FROM pg_locks WHERE NOT granted")
        return bool(rows) or asked[0].done()

    async def hand_out(session: Session) -> None:
        assert await install_attempts.hand_out_secret(session, node_id, machine.address, "the-secret")
        asked.append(asyncio.create_task(machine.config("the-secret")))
        await until(is_waiting, "the machine uses its secret")

    await site.change(hand_out)
    assert (await asked[0]).status_code == 200


async def test_the_secret_is_of_no_use_from_another_address(site: Site) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.INSTALLING)
    secret = site.secrets[machine.name]
    assert (await machine.config(secret, SECOND)).status_code == 409
    assert (await machine.result(secret, source=SECOND)).status_code == 409
    assert await site.stage(machine) is Stage.INSTALLING


async def test_the_secret_is_stored_only_as_a_hash_and_told_to_no_event(site: Site) -> None:
    machine = await deploy_machine(site)
    await site.reach_stage(machine, Stage.INSTALLING)
    await machine.progress(site.secrets[machine.name])
    everything = await site.rack.everything(("install_attempts", "events", "runs", "run_logs", "nodes"))
    assert site.secrets[machine.name] not in str(everything)


# --- many at once


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
