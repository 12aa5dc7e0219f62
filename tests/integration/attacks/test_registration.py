"""What somebody on the network can do with the interface of machines: not from where people are, not with another
machine's words, and not in another machine's place.

A registration is signed as a whole, with a challenge that the server gave out for it: it can be neither altered nor
sent again. A MAC finds a node and proves nothing, also while the server installs it: the secret of an install goes only
to the node's own address, and only its holder brings the node a new key.
"""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.support.machines.signed_registration import public_key, registration, signed
from tests.support.servers.install_site import HandMachine, Site, running_site
from tests.support.waiting import PATIENCE

from rackwright.api.auth.limits import Bucket
from rackwright.domain.machines.install import Stage
from rackwright.server.first_admin import TOKEN_FILE
from rackwright.server.listener import listening
from rackwright.store.machines import challenges

MACHINES = [
    ("GET", "/boot.ipxe"),
    ("GET", "/boot/52:54:00:00:00:01"),
    ("GET", "/boot/52:54:00:00:00:01/grub.cfg"),
    ("GET", "/grub/grub.cfg"),
    ("GET", "/boot/52:54:00:00:00:01/secret"),
    ("GET", "/boot/52:54:00:00:00:01/secret.cpio"),
    ("GET", "/files/sledgehammer/kernel"),
    ("GET", "/api/v2/machine/challenge"),
    ("POST", "/api/v2/nodes/register"),
    ("POST", "/api/v2/machine/heartbeat"),
    ("GET", "/api/v2/install/config"),
    ("POST", "/api/v2/install/progress"),
    ("POST", "/api/v2/install/result"),
]
PEOPLES = [("GET", "/api/v2/nodes"), ("POST", "/api/v2/sessions"), ("GET", "/metrics"), ("GET", "/")]


@pytest.fixture
async def site(started_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with running_site(tmp_path, started_url) as running:
        yield running


# --- where


async def test_people_and_machines_find_only_what_is_theirs_at_their_address(site: Site) -> None:
    async with (
        listening(site.app) as people,
        listening(site.machine_app) as machines,
        httpx.AsyncClient(timeout=PATIENCE, trust_env=False) as client,
    ):
        for address, routes in ((people, MACHINES), (machines, PEOPLES)):
            for method, path in routes:
                answer = await client.request(method, address + path, json={} if method == "POST" else None)
                assert answer.status_code in (404, 405), f"{method} {path} is served at the wrong address"
        assert (await client.get(f"{machines}/boot/52:54:00:00:00:01")).status_code == 200


# --- whose words


async def test_a_registration_that_was_overheard_cannot_be_sent_again(site: Site) -> None:
    machine = HandMachine(site, 1)
    machine.new_boot()
    body = registration(machine.key, await machine.challenge(), [machine.mac], boot_id=machine.boot_id)
    headers = signed(machine.key, body)
    assert (await machine.send(body, headers)).status_code == 201
    token = machine.token
    repeated = await machine.send(body, headers, source="192.0.2.66")
    assert (repeated.status_code, "token" in repeated.json()) == (409, False)
    machine.token = token
    assert (await machine.heartbeat()).status_code == 204, "its own token still holds"


@pytest.mark.parametrize("source", ["fe80::5054:ff:fe77:1", "fe80::1%eth0", "169.254.7.7", "::ffff:169.254.7.7"])
async def test_an_address_that_counts_on_one_link_only_becomes_nobodys(site: Site, source: str) -> None:
    machine = await site.discovered(1)
    machine.new_boot()
    early = await machine.register(source=source)
    assert (early.status_code, early.json()["type"]) == (503, "urn:rackwright:problem:link-local-source")
    [(address,)] = await site.rack.rows(
        "SELECT discovery ->> 'address' FROM nodes WHERE name = :name", name=machine.name
    )
    assert address == machine.address
    assert (await machine.register()).status_code == 201


async def test_a_registration_that_was_refused_cannot_be_sent_again_either(site: Site) -> None:
    await site.discovered(1)
    impostor = HandMachine(site, 1, Ed25519PrivateKey.generate())
    body = registration(impostor.key, await impostor.challenge(), [impostor.mac])
    first, second = [await impostor.send(body, signed(impostor.key, body)) for _ in range(2)]
    assert (first.status_code, second.status_code) == (409, 409)
    assert "was used before" in second.json()["detail"]


@pytest.mark.parametrize(
    "change",
    [
        {"inventory": {"serial": "forged"}},
        {"uuid": "00000000-0000-0000-0000-0000000000aa"},
        {"macs": ["52:54:00:00:00:99"]},
        {"bootenv": "local"},
        {"boot_id": "another"},
    ],
)
async def test_nothing_of_a_registration_can_be_altered_on_its_way(site: Site, change: dict[str, object]) -> None:
    machine = HandMachine(site, 1)
    body = registration(machine.key, await machine.challenge(), [machine.mac], inventory={"serial": "true"})
    altered = json.dumps({**json.loads(body), **change}).encode()
    answer = await machine.send(altered, signed(machine.key, body))
    assert (answer.status_code, answer.json()["pointer"]) == (422, "/key")
    assert await site.rack.rows("SELECT 1 FROM nodes WHERE key IS NOT NULL") == []


async def test_a_challenge_of_one_server_holds_for_another(site: Site) -> None:
    machine = HandMachine(site, 1)
    machine.new_boot()
    challenge = await machine.challenge()
    await site.restart()
    assert (await machine.register(challenge=challenge)).status_code == 201


FORGED = base64.urlsafe_b64encode((2**40).to_bytes(8, "big") + bytes(48)).decode()
"""One that would hold for long, if only it were sealed."""


@pytest.mark.parametrize("challenge", ["made-up", "A" * 76, "x" * 300, "\u2603", FORGED])
async def test_a_challenge_that_nobody_gave_out_is_refused(site: Site, challenge: str) -> None:
    machine = HandMachine(site, 1)
    machine.new_boot()
    answer = await machine.register(challenge=challenge)
    assert (answer.status_code, answer.json()["pointer"]) == (422, "/challenge")


async def test_a_challenge_holds_for_a_short_while_only(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = HandMachine(site, 1)
    machine.new_boot()
    monkeypatch.setattr(challenges, "CHALLENGE_SECONDS", -1)
    answer = await machine.register()
    assert (answer.status_code, answer.json()["pointer"]) == (422, "/challenge")


async def test_who_asks_for_many_challenges_fills_nothing_and_used_ones_are_forgotten(site: Site) -> None:
    machine = HandMachine(site, 1)
    for _ in range(100):
        await machine.challenge()
    assert await site.rack.rows("SELECT count(*) FROM spent_challenges") == [(0,)]
    machine.new_boot()
    await machine.register()
    await site.change(lambda session: session.run("UPDATE spent_challenges SET ends_at = now() - interval '1 second'"))
    machine.new_boot()
    await machine.register()
    assert await site.rack.rows("SELECT count(*) FROM spent_challenges") == [(1,)]


async def test_a_machine_says_nothing_of_a_mesh_that_it_is_not_in(site: Site) -> None:
    machine = HandMachine(site, 1)
    machine.new_boot()
    assert (await machine.register(inventory={"mesh": {"member": "s1", "made": True}})).status_code == 201
    assert await site.rack.rows("SELECT discovery -> 'mesh' FROM nodes WHERE name = :name", name=machine.name) == [
        (None,)
    ]


# --- in whose place


@pytest.mark.parametrize("stage", [Stage.REBOOTING, Stage.INSTALLING, Stage.BOOTING])
async def test_a_foreign_key_is_not_let_in_while_the_node_is_installed(site: Site, stage: Stage) -> None:
    [machine] = await site.deployed(1)
    await site.reach_stage(machine, stage)
    impostor = HandMachine(site, 1, Ed25519PrivateKey.generate())
    impostor.boots = 50
    assert (await impostor.register("local")).status_code == 409
    known = [(public_key(machine.key),)]
    assert await site.rack.rows("SELECT key FROM nodes WHERE name = :name", name=machine.name) == known
    assert await site.stage(machine) is stage, "it changed nothing of the install"


async def test_a_failed_installer_stays_with_the_key_that_it_reports(site: Site) -> None:
    [machine] = await site.deployed(1)
    await site.reach_stage(machine, Stage.INSTALLING)
    machine.key = Ed25519PrivateKey.generate()
    report = {"ok": False, "error": "no disk", "key": public_key(machine.key)}
    answer = await machine.ask("POST", "/api/v2/install/result", report, site.secrets[machine.name])
    assert answer.status_code == 204
    machine.new_boot()
    assert (await machine.register()).status_code == 201


@pytest.mark.parametrize(
    ("own", "strange"), [("192.0.2.40", "192.0.2.66"), ("2001:db8::40", "2001:db8::66"), ("2001:db8::40", "192.0.2.40")]
)
async def test_the_secret_of_an_install_goes_to_the_nodes_own_address_only(site: Site, own: str, strange: str) -> None:
    [machine] = await site.deployed(1)
    await site.reach_stage(machine, Stage.REBOOTING)
    await _give_address(site, machine, own)
    stolen = await machine.fetch_secret(source=strange)
    assert stolen.status_code == 409
    assert await site.stage(machine) is Stage.REBOOTING
    secret = await machine.fetch_secret(source=own)
    assert secret.status_code == 200
    assert (await machine.config(secret.text, source=strange)).status_code == 409
    assert (await machine.config(secret.text, source=own)).status_code == 200


async def test_a_key_is_offered_only_from_the_nodes_own_address(site: Site) -> None:
    machine = await site.discovered(1)
    await _give_address(site, machine, "192.0.2.40")
    impostor = HandMachine(site, 1, Ed25519PrivateKey.generate())
    impostor.new_boot()
    for source, offered in (("192.0.2.66", None), ("192.0.2.40", public_key(impostor.key))):
        assert (await impostor.register(source=source)).status_code == 409
        rows = await site.rack.rows("SELECT offered_key FROM nodes WHERE name = :name", name=machine.name)
        assert rows == [(offered,)]


async def _give_address(site: Site, machine: HandMachine, address: str) -> None:
    token = (site.options.home / TOKEN_FILE).read_text().strip()
    family, subnet, start = (4, "192.0.2.0/24", "192.0.2.") if "." in address else (6, "2001:db8::/64", "2001:db8::")
    network = {
        "name": "boot",
        f"v{family}_subnet": subnet,
        "ranges": [{"name": "host", "first": f"{start}10", "last": f"{start}99"}],
    }
    for path, body in (
        ("/networks", network),
        ("/networks/boot/allocations", {"node": machine.name, "address": address}),
    ):
        answer = await site.ask("POST", f"/api/v2{path}", body, token, "192.0.2.250")
        assert answer.status_code == 201, answer.text


# --- who counts as one


async def test_a_host_that_takes_many_addresses_of_its_network_is_limited_all_the_same(site: Site) -> None:
    site.machine_app.state.network_bucket = Bucket(rate=50, burst=8, clock=lambda: 0.0)

    async def ask(source: str) -> int:
        return (await site.ask("GET", "/boot.ipxe", None, "", source)).status_code

    statuses = [await ask(f"2001:db8::{number:x}:1") for number in range(1, 17)]
    assert statuses == [200] * 8 + [429] * 8
    assert [await ask(source) for source in ("2001:db8:0:1::1", "192.0.2.1", "::ffff:192.0.2.2")] == [200] * 3


async def test_people_are_counted_by_ipv6_network_and_machines_one_by_one(site: Site) -> None:
    """A host has all addresses of its network; but the machines of a rack are in one, and boot at the same time."""
    sources = [f"2001:db8::{number:x}" for number in range(1, 17)]
    for app, path in ((site.app, "/readyz"), (site.machine_app, "/boot.ipxe")):
        app.state.public_bucket = Bucket(rate=50, burst=8, clock=lambda: 0.0)
        statuses = [(await site.ask("GET", path, None, "", source)).status_code for source in sources]
        assert statuses.count(429) == (8 if app is site.app else 0)
