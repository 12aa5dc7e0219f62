"""What machines hear of their neighbours, as the server takes and shows it."""

from typing import Any

from tests.support.servers.install_site import HandMachine, Site

from rackwright.lab.lldp import in_base64, switch_frame
from rackwright.server.first_admin import TOKEN_FILE

HEARD = {"chassis": "02:00:77:00:00:00", "port": "Ethernet7", "name": "leaf-1"}


async def _registered(site: Site, **inventory: object) -> HandMachine:
    machine = HandMachine(site, 1)
    machine.new_boot()
    assert (await machine.register(inventory=inventory)).status_code == 201
    return machine


async def _shown(site: Site, machine: HandMachine) -> Any:
    token = (site.options.home / TOKEN_FILE).read_text().strip()
    answer = await site.ask("GET", f"/api/v2/nodes/{machine.name}", None, token, "192.0.2.200")
    assert answer.status_code == 200, answer.text
    return answer.json()["discovery"]


async def test_a_neighbour_that_was_heard_after_the_registration_is_shown_with_all_else(site: Site) -> None:
    machine = await _registered(site, serial="S1", lldp={})
    assert (await _shown(site, machine))["lldp"] == {}
    again = await machine.register(inventory={"serial": "S1", "lldp": {"eth0": in_base64(switch_frame(7))}})
    assert (again.status_code, again.json()["new"]) == (201, False)
    shown = await _shown(site, machine)
    assert (shown["serial"], shown["lldp"]) == ("S1", {"eth0": HEARD})


async def test_a_new_boot_forgets_neighbours_that_an_installed_system_does_not(site: Site) -> None:
    machine = await _registered(site, lldp={"eth0": in_base64(switch_frame(7))})
    machine.new_boot()
    await machine.register("local", inventory={"kernel": "6.1"})
    assert (await _shown(site, machine))["lldp"] == {"eth0": HEARD}, "it does not listen"
    machine.new_boot()
    await machine.register(inventory={"lldp": {}})
    assert (await _shown(site, machine))["lldp"] == {}, "nobody knows whether the cable is still there"


async def test_garbage_from_a_neighbour_keeps_no_machine_from_registering(site: Site) -> None:
    machine = await _registered(site, lldp={"eth0": in_base64(b"\xff" * 1500), "eth1": in_base64(switch_frame(7))})
    assert (await _shown(site, machine))["lldp"] == {"eth1": HEARD}


async def test_nonsense_from_a_machine_is_refused_with_where_it_is(site: Site) -> None:
    machine = HandMachine(site, 1)
    machine.new_boot()
    nonsense: tuple[object, ...] = ([], {"eth0": HEARD}, {"eth0": "<script>"}, {"a link with spaces": ""})
    for lldp in nonsense:
        answer = await machine.register(inventory={"lldp": lldp})
        assert answer.status_code == 422
        assert answer.json()["pointer"].startswith("/inventory/lldp")
    assert await site.rack.rows("SELECT count(*) FROM nodes WHERE NOT admin AND NOT system") == [(0,)]
