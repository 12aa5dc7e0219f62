"""What machines fetch before they have a system, and what strangers on their network cannot get."""

import base64
import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.support.servers.install_site import INSTALL, HandMachine, Site

from rackwright.api.auth.limits import Bucket
from rackwright.domain.machines.install import Stage
from rackwright.domain.states import ERROR
from rackwright.store.machines.keys import format_host_key

STRANGER = "198.51.100.7"
KERNEL = bytes(range(256)) * 40


@pytest.fixture
async def stocked(site: Site) -> Site:
    """A site with an image on its shelf."""
    with site.server.shelf.making("sledgehammer", {}) as folder:
        (folder / "kernel").write_bytes(KERNEL)
    return site


async def _get(site: Site, path: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    async with site.machine_client("192.0.2.9") as client:
        answer = await client.get(f"http://site:8090{path}", headers=headers)
        return answer.status_code, answer.content, dict(answer.headers)


# --- files


async def test_a_file_is_served_with_its_digest(stocked: Site) -> None:
    status, body, headers = await _get(stocked, "/files/sledgehammer/kernel")
    assert (status, body) == (200, KERNEL)
    assert headers["x-content-sha256"] == hashlib.sha256(KERNEL).hexdigest()
    assert headers["content-length"] == str(len(KERNEL))


async def test_a_part_of_a_file_can_be_asked_for(stocked: Site) -> None:
    status, body, headers = await _get(stocked, "/files/sledgehammer/kernel", range="bytes=100-199")
    assert (status, body) == (206, KERNEL[100:200])
    assert headers["content-range"] == f"bytes 100-199/{len(KERNEL)}"


async def test_a_part_beyond_the_end_is_refused(stocked: Site) -> None:
    status, _, _ = await _get(stocked, "/files/sledgehammer/kernel", range="bytes=999999-")
    assert status == 416


@pytest.mark.parametrize(
    "path",
    [
        "/files/sledgehammer/..%2f..%2fadmin-token",
        "/files/%2e%2e/admin-token",
        "/files/..%2f/admin-token",
        "/files/sledgehammer/manifest.json",
        "/files/sledgehammer/%2fetc%2fpasswd",
        "/files/sledgehammer/kernel%00",
        "/files/sledgehammer/",
        "/files/none/kernel",
    ],
)
async def test_no_path_leads_out_of_the_images(stocked: Site, path: str) -> None:
    (stocked.options.home / "admin-token").write_text("secret")
    status, body, _ = await _get(stocked, path)
    assert status == 404
    assert b"secret" not in body


async def test_dots_that_a_client_resolves_itself_lead_to_nothing_on_either_address(stocked: Site) -> None:
    (stocked.options.home / "admin-token").write_text("secret")
    status, body, _ = await _get(stocked, "/files/sledgehammer/../../admin-token")
    assert (status, b"secret" in body) == (404, False)
    async with stocked.people_client() as client:
        body = (await client.get("/files/sledgehammer/../../admin-token")).content
        assert body == (await client.get("/nodes")).content
        assert b"secret" not in body


# --- scripts


async def test_a_machine_that_nobody_knows_is_told_to_boot_sledgehammer(site: Site) -> None:
    status, body, _ = await _get(site, "/boot/52:54:00:aa:bb:cc")
    assert status == 200
    assert b"# bootenv sledgehammer" in body
    assert b"rackwright.server=http://site:8090 " in body


async def test_the_same_answer_is_given_by_mac_with_hyphens_and_by_uuid(site: Site) -> None:
    machine = await site.discovered(1)
    for name in (machine.mac.replace(":", "-"), machine.uuid):
        assert b"# bootenv sledgehammer" in (await _get(site, f"/boot/{name}"))[1]


@pytest.mark.parametrize("name", ["x", "52:54:00:aa:bb", "52:54:00:aa:bb:cc%0aexit", "%24%7bip%7d"])
async def test_what_is_neither_mac_nor_uuid_is_refused(site: Site, name: str) -> None:
    assert (await _get(site, f"/boot/{name}"))[0] == 422


@pytest.mark.parametrize("host", ["a b", "site;reboot", "${ip}", "a/b", "a@b"])
async def test_a_host_name_that_would_get_into_the_script_is_checked(site: Site, host: str) -> None:
    assert (await _get(site, "/boot/52:54:00:aa:bb:cc", host=host))[0] == 422


# --- secrets


async def test_the_secret_comes_as_an_archive_once_and_a_second_fetch_is_an_alarm(site: Site) -> None:
    [machine] = await site.deployed(1)
    await site.reach_stage(machine, Stage.REBOOTING)
    first = await machine.ask("GET", f"/boot/{machine.mac}/secret.cpio")
    assert first.status_code == 200
    assert first.content.startswith(b"070701")
    assert b"rackwright/secret" in first.content
    second = await machine.ask("GET", f"/boot/{machine.mac}/secret.cpio", source=STRANGER)
    assert second.status_code == 404
    assert await site.events("install.alarm") == 1
    assert await site.stage(machine) is Stage.FAILED
    assert await site.rack.state(machine.short, INSTALL) is ERROR
    assert await machine.what_to_boot() == "sledgehammer", "never again the installer by itself"


async def test_asking_for_the_head_of_the_secret_hands_nothing_out(site: Site) -> None:
    [machine] = await site.deployed(1)
    await site.reach_stage(machine, Stage.REBOOTING)
    for _ in range(2):
        head = await machine.ask("HEAD", f"/boot/{machine.mac}/secret.cpio")
        assert (head.status_code, head.content) == (200, b"")
    assert await site.stage(machine) is Stage.REBOOTING
    assert (await machine.ask("GET", f"/boot/{machine.mac}/secret.cpio")).status_code == 200
    assert await site.stage(machine) is Stage.INSTALLING


async def test_a_stranger_with_the_secret_does_not_get_the_config_from_another_address(site: Site) -> None:
    [machine] = await site.deployed(1)
    await site.reach_stage(machine, Stage.INSTALLING)
    secret = site.secrets[machine.name]
    assert (await machine.config(secret, source=STRANGER)).status_code == 409
    assert (await machine.config(secret)).status_code == 200


async def test_a_machine_without_an_install_gets_no_secret_and_no_config(site: Site) -> None:
    [installing] = await site.deployed(1)
    await site.reach_stage(installing, Stage.REBOOTING)
    other = await site.discovered(2)
    assert (await other.fetch_secret()).status_code == 404
    assert (await other.config(other.token)).status_code == 404
    assert await site.stage(installing) is Stage.REBOOTING, "the other's asking harmed nothing"


async def test_the_secret_of_a_finished_install_is_worth_nothing(site: Site) -> None:
    [machine] = await site.deployed(1)
    await site.reach_stage(machine, Stage.DONE)
    secret = site.secrets[machine.name]
    for answer in (await machine.config(secret), await machine.progress(secret), await machine.result(secret)):
        assert answer.status_code == 409
    assert await site.stage(machine) is Stage.DONE


async def test_the_config_as_text_is_lines_that_a_shell_can_read(site: Site) -> None:
    [machine] = await site.deployed(1)
    await site.reach_stage(machine, Stage.INSTALLING)
    status, body, _ = await _config_as_text(site, machine)
    lines = {line.split("\t")[0]: line.split("\t")[2] for line in body.decode().splitlines()}
    assert status == 200
    assert lines["/os"] == "debian-12"
    assert lines["/node"] == machine.name
    assert lines["/authorized_keys/0"].startswith("ssh-ed25519 ")


async def _config_as_text(site: Site, machine: HandMachine) -> tuple[int, bytes, dict[str, str]]:
    import httpx

    transport = httpx.ASGITransport(app=site.machine_app, client=(machine.address, 40000))
    headers = {"Authorization": f"Bearer {site.secrets[machine.name]}", "Accept": "text/plain"}
    async with httpx.AsyncClient(transport=transport, base_url="http://site") as client:
        answer = await client.get("/api/v2/install/config", headers=headers)
        return answer.status_code, answer.content, dict(answer.headers)


# --- keys


def _public(key: Ed25519PrivateKey) -> str:
    return base64.b64encode(key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()


async def _pinned(site: Site, machine: HandMachine) -> str:
    [(key,)] = await site.rack.rows("SELECT host_key FROM nodes WHERE name = :name", name=machine.name)
    return str(key)


async def test_the_key_a_machine_registers_with_is_its_pinned_host_key(site: Site) -> None:
    machine = await site.discovered(1)
    assert await _pinned(site, machine) == format_host_key(_public(machine.key))


async def test_the_key_of_the_installed_system_is_pinned_with_the_success_report(site: Site) -> None:
    [machine] = await site.deployed(1)
    await site.reach_stage(machine, Stage.INSTALLING)
    machine.key = Ed25519PrivateKey.generate()
    body = {"ok": True, "key": _public(machine.key)}
    assert (await machine.ask("POST", "/api/v2/install/result", body, site.secrets[machine.name])).status_code == 204
    assert await _pinned(site, machine) == format_host_key(_public(machine.key))
    impostor = HandMachine(site, 1, Ed25519PrivateKey.generate())
    impostor.boots = 9
    assert (await impostor.register("local")).status_code == 409, "no other key is taken any more"
    machine.new_boot()
    assert (await machine.register("local")).status_code == 201


async def test_a_key_that_is_none_is_refused_and_the_install_goes_on(site: Site) -> None:
    [machine] = await site.deployed(1)
    await site.reach_stage(machine, Stage.INSTALLING)
    body = {"ok": True, "key": "bm90IGEga2V5"}
    assert (await machine.ask("POST", "/api/v2/install/result", body, site.secrets[machine.name])).status_code == 422
    assert await site.stage(machine) is Stage.INSTALLING


async def test_what_sledgehammer_found_stays_known_when_the_installed_system_reports(site: Site) -> None:
    machine = await site.discovered(1)
    machine.new_boot()
    assert (await machine.register("local", inventory={"kernel": "6.1"})).status_code == 201
    [(found,)] = await site.rack.rows("SELECT discovery FROM nodes WHERE name = :name", name=machine.name)
    assert isinstance(found, dict)
    assert (found["kernel"], found["serial"]) == ("6.1", f"HAND{machine.mac}")


# --- floods


async def test_a_flood_from_one_address_is_bounded_and_others_are_still_heard(site: Site) -> None:
    site.machine_app.state.public_bucket = Bucket(rate=50, burst=40, clock=lambda: 0.0)  # two requests each
    flood = HandMachine(site, 9)
    flood.new_boot()
    answers = [(await flood.register()).status_code for _ in range(30)]
    assert answers == [201] * 20 + [429] * 10
    assert await site.rack.rows("SELECT count(*) FROM nodes WHERE NOT available") == [(1,)], "all of it is one machine"
    machine = HandMachine(site, 1)
    machine.new_boot()
    assert (await machine.register()).status_code == 201
