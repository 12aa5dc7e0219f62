"""What strangers on the provisioning network, and tenants, can do to the quarantine: nothing that lasts.

A machine that comes by itself waits until somebody accepts it who may. Waiting is a state of its own: only who waits
is ever deleted by a clock, only so many may wait, and only so many of one address. Somebody who may write in one
deployment can add a node with any MAC, but a machine that comes with it is kept out all the same.
"""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.support.machines.signed_registration import public_key
from tests.support.servers.install_site import INSTALLED, HandMachine, Site, running_site

from rackwright.domain.machines.install import Stage
from rackwright.domain.states import TRANSITION
from rackwright.server.first_admin import TOKEN_FILE
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.machines import registration
from rackwright.store.machines.boot import set_bootenv
from rackwright.store.machines.keys import key_fingerprint
from rackwright.store.machines.nodes import confirm_identity, get_node, update_node
from rackwright.store.machines.registration import delete_abandoned_machines, select_machines_to_ask
from rackwright.store.people.tokens import NewToken, create_token

TENANTS = "shop"
"""The deployment that the tenant may write in."""


@pytest.fixture
async def site(started_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with running_site(tmp_path, started_url) as running:
        yield running


async def _waiting(site: Site, number: int, source: str = "") -> HandMachine:
    """A machine that came by itself."""
    machine = HandMachine(site, number)
    machine.new_boot()
    assert (await machine.register(source=source)).status_code == 201
    return machine


async def _days_pass(site: Site) -> None:
    past = "now() - interval '30 days'"
    await site.change(
        lambda session: session.run(
            f"UPDATE nodes SET seen_at = CASE WHEN seen_at IS NOT NULL THEN {past} END, created_at = {past},"
            f" waiting_since = CASE WHEN waiting_since IS NOT NULL THEN {past} END"
        )
    )


async def _names(site: Site) -> set[object]:
    return {name for (name,) in await site.rack.rows("SELECT name FROM nodes")}


# --- the clock


async def test_no_node_that_was_ever_accepted_is_deleted_by_a_clock(site: Site) -> None:
    accepted, stranger = await site.discovered(1), await _waiting(site, 2)
    added = await site.rack.node("added")
    for node in (accepted.name, added):
        await site.change(lambda session, node=node: update_node(session, node, {"available": False}))  # type: ignore[misc]
    await _days_pass(site)
    await site.change_graph(delete_abandoned_machines)
    names = await _names(site)
    assert {accepted.name, "added.rack.example"} <= names
    assert stranger.name not in names


async def test_a_machine_that_waits_and_cannot_be_deleted_keeps_no_other_from_it(site: Site) -> None:
    stuck, other = await _waiting(site, 1), await _waiting(site, 2)
    id = await site.rack.node_id(stuck.name)
    await site.change(
        lambda session: session.run(
            "UPDATE node_roles SET state = :state, run_id = 1 WHERE id = (SELECT min(id) FROM node_roles"
            " WHERE node_id = :id)",
            state=int(TRANSITION),
            id=id,
        )
    )
    await _days_pass(site)
    await site.change_graph(delete_abandoned_machines)
    names = await _names(site)
    assert stuck.name in names
    assert other.name not in names


async def test_a_node_that_was_set_aside_and_runs_is_still_asked(site: Site) -> None:
    machine = await site.discovered(1)
    machine.new_boot()
    await machine.heartbeat("local")
    id = await site.rack.node_id(machine.name)
    await site.change(lambda session: update_node(session, id, {"available": False}))
    await site.change(lambda session: session.run("UPDATE nodes SET seen_at = now() - interval '5 minutes'"))
    async with site.server.store.read() as session:
        assert await select_machines_to_ask(session, alive=True) == [id]


# --- room


async def test_one_address_cannot_fill_the_quarantine(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "QUARANTINE_LIMIT_PER_SOURCE", 3)
    for number in (1, 2, 3):
        await _waiting(site, number, source="192.0.2.77")
    made_up = HandMachine(site, 4)
    made_up.new_boot()
    answer = await made_up.register(source="192.0.2.77")
    assert (answer.status_code, answer.json()["type"]) == (429, "urn:rackwright:problem:quarantine-full")
    await _waiting(site, 5)


async def test_a_host_with_a_whole_ipv6_network_cannot_fill_the_quarantine(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "QUARANTINE_LIMIT_PER_NETWORK", 3)
    for number in (1, 2, 3):
        await _waiting(site, number, source=f"2001:db8::{number}:7")
    made_up = HandMachine(site, 4)
    made_up.new_boot()
    answer = await made_up.register(source="2001:db8::99")
    assert (answer.status_code, answer.json()["type"]) == (429, "urn:rackwright:problem:quarantine-full")
    await _waiting(site, 5, source="2001:db8:0:1::1")
    await _waiting(site, 6, source="192.0.2.77")


# --- somebody else's machine


class Tenant:
    """Somebody who may write in one deployment."""

    def __init__(self, site: Site, token: str) -> None:
        self._site = site
        self._token = token

    async def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return await self._site.ask(method, f"/api/v2{path}", body, self._token, "192.0.2.250")


@pytest.fixture
async def tenant(site: Site) -> Tenant:
    deployment = await site.rack.deployment(TENANTS)

    async def work(session: Session) -> str:
        id = await session.value("INSERT INTO users (name, role) VALUES ('mallory', 'none') RETURNING id")
        await session.run(
            "INSERT INTO grants (user_id, deployment_id, role) VALUES (:id, :deployment, 'operator')",
            id=id,
            deployment=deployment,
        )
        _, token = await create_token(session, NewToken(id, "test"))
        return token

    return Tenant(site, await site.change(work))


@pytest.fixture
def administrator(site: Site) -> Tenant:
    return Tenant(site, (site.options.home / TOKEN_FILE).read_text().strip())


async def test_a_tenant_who_adds_a_foreign_mac_does_not_get_the_machine(
    site: Site, tenant: Tenant, administrator: Tenant
) -> None:
    machine = HandMachine(site, 1)
    machine.new_boot()
    claimed = {"name": "mine.shop.example", "deployment": TENANTS, "macs": [machine.mac], "alive": True}
    assert (await tenant.ask("POST", "/nodes", claimed)).status_code == 201
    answer = await machine.register()
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:rackwright:problem:key-offered")

    node = (await tenant.ask("GET", "/nodes/mine.shop.example")).json()
    key = key_fingerprint(public_key(machine.key))
    assert (node["offered_key"], node["offered_from"], node["discovery"]) == (key, machine.address, {})
    assert (await tenant.ask("POST", "/nodes/mine.shop.example/accept")).status_code == 403
    assert (await tenant.ask("POST", "/nodes/mine.shop.example/accept", {"key": key})).status_code == 403

    without = await administrator.ask("POST", "/nodes/mine.shop.example/accept")
    assert (without.status_code, key in without.json()["detail"]) == (409, True)
    accepted = await administrator.ask("POST", "/nodes/mine.shop.example/accept", {"key": key})
    assert (accepted.status_code, accepted.json()["identity_confirmed"]) == (200, True)
    assert (await machine.register()).status_code == 201


async def test_a_machine_with_a_claimed_mac_is_not_installed_by_who_claims_it(site: Site, tenant: Tenant) -> None:
    claimed = {"name": "mine.shop.example", "deployment": TENANTS, "macs": ["52:54:00:00:00:01"], "alive": True}
    assert (await tenant.ask("POST", "/nodes", claimed)).status_code == 201
    await site.anneal()
    await site.rack.deploy(TENANTS, ("mine.shop.example", INSTALLED))
    await site.anneal()
    machine = HandMachine(site, 1)
    assert await machine.what_to_boot() == "sledgehammer"
    assert (await machine.fetch_secret()).status_code == 404
    install = await site.rack.at("mine", "provisioner-os-install")
    assert "rackwright node accept mine.shop.example" in install.error


async def test_a_foreign_mac_on_a_node_of_ones_own_boots_nothing_of_it(site: Site, tenant: Tenant) -> None:
    own = await site.discovered(1)
    assert (await Tenant(site, _token(site)).ask("POST", f"/nodes/{own.name}/move", {"deployment": TENANTS})).is_success
    id = await site.rack.node_id(own.name)
    await site.change(lambda session: set_bootenv(session, id, "debian-12-install"))
    foreign = HandMachine(site, 2)
    changed = await tenant.ask("PATCH", f"/nodes/{own.name}", {"macs": [own.mac, foreign.mac]})
    assert (changed.status_code, changed.json()["identity_confirmed"]) == (200, False)
    assert await foreign.what_to_boot() == "sledgehammer"


async def test_no_secret_of_an_install_is_given_out_while_it_is_open_which_machine_the_node_is(site: Site) -> None:
    """Its operator may give the node another MAC after the install has begun."""
    [machine] = await site.deployed(1)
    await site.reach_stage(machine, Stage.REBOOTING)

    async def confirm(session: Session, *, confirmed: bool) -> None:
        await confirm_identity(session, await get_node(session, machine.name, EVERYTHING), confirmed=confirmed)

    await site.change(partial(confirm, confirmed=False))
    assert (await machine.fetch_secret()).status_code == 404
    await site.change(partial(confirm, confirmed=True))
    assert (await machine.fetch_secret()).status_code == 200


def _token(site: Site) -> str:
    return (site.options.home / TOKEN_FILE).read_text().strip()


async def test_a_node_that_an_administrator_adds_takes_its_machine_at_once(site: Site, administrator: Tenant) -> None:
    machine = HandMachine(site, 1)
    machine.new_boot()
    added = {"name": "n1.rack.example", "macs": [machine.mac]}
    assert (await administrator.ask("POST", "/nodes", added)).status_code == 201
    assert (await machine.register()).json()["new"] is False
    other = HandMachine(site, 1, Ed25519PrivateKey.generate())
    assert (await other.register()).status_code == 409


async def test_a_machine_that_lost_its_key_is_let_in_by_the_key_on_its_console(
    site: Site, administrator: Tenant
) -> None:
    [machine] = await site.deployed(1)
    await site.reach_stage(machine, Stage.INSTALLING)
    machine.key = Ed25519PrivateKey.generate()  # its power was cut: sledgehammer makes a new one at each boot
    machine.new_boot()
    assert (await machine.register()).status_code == 409
    wrong = key_fingerprint(public_key(Ed25519PrivateKey.generate()))
    refused = await administrator.ask("POST", f"/nodes/{machine.name}/accept", {"key": wrong})
    assert refused.status_code == 409
    key = key_fingerprint(public_key(machine.key))
    assert (await administrator.ask("POST", f"/nodes/{machine.name}/accept", {"key": key})).status_code == 200
    assert (await machine.register()).status_code == 201
