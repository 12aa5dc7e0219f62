"""What machines say of themselves: registration, quarantine, keys, heartbeats and silence."""

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.support.machines.signed_registration import public_key, registration, signed
from tests.support.servers.install_site import DISCOVERED, HandMachine, Site

from rackwright.api.app import create_machine_app
from rackwright.domain.graph.why import Cause
from rackwright.domain.machines.install import Stage
from rackwright.domain.states import ACTIVE, TODO
from rackwright.store.machines import registration as machines
from rackwright.store.machines.registration import accept_machine, delete_abandoned_machines, mark_silent_machines


async def _new(site: Site, number: int = 1) -> HandMachine:
    machine = HandMachine(site, number)
    machine.new_boot()
    assert (await machine.register()).status_code == 201
    return machine


async def test_a_new_machine_waits_in_quarantine_until_somebody_accepts_it(site: Site) -> None:
    machine = await _new(site)
    await site.anneal()
    assert await site.rack.state(machine.short, DISCOVERED) is not ACTIVE
    assert (await site.why(machine, "ssh-access")).cause is Cause.NODE_UNAVAILABLE
    await site.change(lambda session: accept_machine(session, machine.name))
    await site.anneal()
    assert await site.rack.state(machine.short, DISCOVERED) is ACTIVE


async def test_a_machine_that_registers_again_is_the_same_node(site: Site) -> None:
    machine = await _new(site)
    machine.new_boot()
    answer = await machine.register()
    assert (answer.status_code, answer.json()["new"]) == (201, False)
    assert await site.rack.rows("SELECT count(*) FROM nodes WHERE NOT admin AND NOT system") == [(1,)]


async def test_a_registration_needs_the_private_half_of_its_key(site: Site) -> None:
    machine = HandMachine(site, 1)
    machine.new_boot()
    body = registration(machine.key, await machine.challenge(), [machine.mac])
    answer = await machine.send(body, signed(Ed25519PrivateKey.generate(), body))
    assert answer.status_code == 422
    assert answer.json()["pointer"] == "/key"


async def test_another_key_with_a_known_mac_is_refused(site: Site) -> None:
    machine = await _new(site)
    impostor = HandMachine(site, 1, Ed25519PrivateKey.generate())
    impostor.boots = 7
    answer = await impostor.register()
    assert answer.status_code == 409
    assert machine.name in answer.json()["detail"]
    assert (await machine.heartbeat()).status_code == 204, "its token still holds"


async def test_the_key_of_an_installed_system_comes_with_the_secret_of_its_install(site: Site) -> None:
    [machine] = await site.deployed(1)
    await site.reach_stage(machine, Stage.INSTALLING)
    machine.key = Ed25519PrivateKey.generate()
    result = {"ok": True, "key": public_key(machine.key)}
    answer = await machine.ask("POST", "/api/v2/install/result", result, site.secrets[machine.name])
    assert answer.status_code == 204
    machine.new_boot()
    assert (await machine.register("local")).status_code == 201
    machine.key = Ed25519PrivateKey.generate()
    machine.new_boot()
    assert (await machine.register("local")).status_code == 409


async def test_a_registration_of_an_earlier_boot_is_refused(site: Site) -> None:
    machine = await _new(site)
    before = machine.boot_id
    machine.new_boot()
    await machine.register()
    token = machine.token
    assert (await machine.register(boot_id=before)).status_code == 409
    machine.token = token
    assert (await machine.heartbeat()).status_code == 204


async def test_the_token_of_an_earlier_registration_is_worth_nothing(site: Site) -> None:
    machine = await _new(site)
    old = machine.token
    machine.new_boot()
    await machine.register()
    machine.token = old
    assert (await machine.heartbeat()).status_code == 401


async def test_a_full_quarantine_takes_no_stranger_but_known_machines(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = await _new(site)
    monkeypatch.setattr(machines, "QUARANTINE_LIMIT", 1)
    stranger = HandMachine(site, 2)
    stranger.new_boot()
    assert (await stranger.register()).status_code == 429
    machine.new_boot()
    assert (await machine.register()).status_code == 201


async def test_an_inventory_that_is_too_large_is_refused(site: Site) -> None:
    machine = HandMachine(site, 1)
    machine.new_boot()
    assert (await machine.register(inventory={"blob": "x" * 270_000})).status_code == 413


async def test_a_silent_machine_is_not_alive_and_comes_back_with_its_next_heartbeat(site: Site) -> None:
    machine = await site.discovered(1)
    await site.change(lambda session: mark_silent_machines(session, 10.0))
    assert await site.alive(machine)
    await site.change(lambda session: session.run("UPDATE nodes SET seen_at = now() - interval '31 seconds'"))
    await site.change(lambda session: mark_silent_machines(session, 10.0))
    assert not await site.alive(machine)
    await machine.heartbeat()
    assert await site.alive(machine)
    assert await site.anneal() == [], "it did not boot, so nothing runs again"


async def test_a_new_boot_makes_the_noderoles_of_a_machine_run_again(site: Site) -> None:
    machine = await site.discovered(1)
    machine.new_boot()
    await machine.heartbeat()
    assert await site.rack.state(machine.short, "ssh-access") is TODO
    assert (machine.short, DISCOVERED) in await site.anneal()


async def test_machines_that_nobody_accepted_and_that_are_gone_are_forgotten(site: Site) -> None:
    machine = await _new(site)
    accepted = await site.discovered(2)
    await site.change_graph(delete_abandoned_machines)
    await site.change(lambda session: session.run("UPDATE nodes SET seen_at = now() - interval '8 days'"))
    await site.change_graph(delete_abandoned_machines)
    names = [name for (name,) in await site.rack.rows("SELECT name FROM nodes")]
    assert machine.name not in names
    assert accepted.name in names


async def test_new_machines_are_named_by_the_pattern_and_never_alike(site: Site) -> None:
    site.server = replace(site.server, discovered_names="{serial}.rack.example")
    site.machine_app = create_machine_app(site.server)
    for number in (1, 2):
        machine = HandMachine(site, number)
        machine.new_boot()
        assert (await machine.register(inventory={"serial": "SN/7"})).status_code == 201
    found = await site.rack.rows("SELECT name FROM nodes WHERE NOT admin AND NOT system ORDER BY id")
    assert found == [("sn-7.rack.example",), ("sn-7-525400000002.rack.example",)]
