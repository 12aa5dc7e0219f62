"""DHCP by a real Kea to real clients, in network namespaces: who gets what, and that it follows the database."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.machines.boot_provider import Provider, providing
from tests.support.processes import is_alive
from tests.support.rack import refused
from tests.support.waiting import until

from rackwright.domain.errors import Rule
from rackwright.domain.networks.dhcp import DECLINED_SECONDS
from rackwright.store.machines.boot import set_bootenv
from rackwright.store.machines.nodes import delete_node

M1, M2, M3 = "52:54:00:00:00:01", "52:54:00:00:00:02", "52:54:00:00:00:03"
STRANGER = "52:54:00:ff:ff:01"


@pytest.fixture
async def provider(migrated_url: str, tmp_path: Path) -> AsyncIterator[Provider]:
    async with providing(tmp_path, migrated_url) as made:
        yield made


async def test_a_machine_gets_its_own_address_name_and_boot_file_and_a_stranger_one_of_the_pool(
    provider: Provider,
) -> None:
    await provider.node("n1.rack.example", M1)
    await provider.node("n2.rack.example", M2, M3)
    await provider.caught_up()
    bios = await provider.ask(M1, "--arch", "0")
    assert (bios["address"], bios["hostname"]) == ("10.77.0.20", "n1.rack.example")
    assert (bios["next_server"], bios["boot_file"], bios["routers"]) == ("10.77.0.1", "undionly.kpxe", ["10.77.0.1"])
    uefi = await provider.ask(M3, "--arch", "7")
    assert (uefi["address"], uefi["boot_file"]) == ("10.77.0.21", "shimx64.efi")
    arm64 = await provider.ask(M3, "--arch", "11")
    assert (arm64["address"], arm64["boot_file"]) == ("10.77.0.21", "shimaa64.efi")
    ipxe = await provider.ask(M1, "--arch", "0", "--ipxe")
    assert ipxe["boot_file"] == "http://${next-server}:8091/boot/${netX/mac:hexhyp}"
    assert ipxe["ipxe"] == "b00101"
    stranger = await provider.ask(STRANGER, "--arch", "0")
    assert 100 <= int(stranger["address"].split(".")[3]) <= 199
    assert stranger["boot_file"] == "undionly.kpxe"


async def test_a_machine_is_served_on_an_interface_that_was_made_again(provider: Provider) -> None:
    await provider.node("n1.rack.example", M1)
    await provider.caught_up()
    assert (await provider.ask(M1))["address"] == "10.77.0.20"
    await asyncio.to_thread(provider.wires.make_card_again, "admin")
    assert (await provider.ask(M1))["address"] == "10.77.0.20"


async def test_a_declined_address_is_given_to_nobody_for_a_while(provider: Provider) -> None:
    await provider.caught_up()
    declined = await provider.ask(STRANGER, "--decline", "3")
    assert len(set(declined)) == 3
    assert (await provider.ask(M1))["address"] not in declined
    config = await provider.kea()._kea4.configuration()
    assert config["Dhcp4"]["decline-probation-period"] == DECLINED_SECONDS < 3600, "Kea's own is a day"


async def test_firmware_that_boots_by_http_gets_a_url_and_is_told_that_it_is_one(provider: Provider) -> None:
    await provider.node("n1.rack.example", M1)
    await provider.caught_up()
    url = "http://10.77.0.1:8091/files/sledgehammer/shimx64.efi"
    for mac in (M1, STRANGER):
        firmware = await provider.ask(mac, "--arch", "16")
        assert (firmware["boot_file"], firmware["vendor_class"]) == (url, "HTTPClient")
    assert (await provider.ask(M1, "--arch", "16"))["address"] == "10.77.0.20"
    arm64 = await provider.ask(M1, "--arch", "19")
    assert arm64["boot_file"] == "http://10.77.0.1:8091/files/sledgehammer-arm64/shimaa64.efi"
    assert (arm64["address"], arm64["vendor_class"]) == ("10.77.0.20", "HTTPClient")
    tftp = await provider.ask(M1, "--arch", "7")
    assert (tftp["boot_file"], tftp["vendor_class"]) == ("shimx64.efi", "")
    ipxe = await provider.ask(M1, "--arch", "16", "--ipxe")
    assert ipxe["boot_file"] == "http://${next-server}:8091/boot/${netX/mac:hexhyp}"
    state = await provider.kea().served()
    assert [subnet.network for subnet in state.v4.subnets] == ["admin"], "what Kea serves is read back as it was"


async def test_what_a_node_boots_is_served_before_it_is_recorded_and_a_deleted_node_is_a_stranger_again(
    provider: Provider,
) -> None:
    id = await provider.node("n1.rack.example", M1)
    await provider.caught_up()
    generation = await provider.change(lambda session: set_bootenv(session, id, "debian-12-install"))
    await provider.caught_up()
    kea = provider.kea()
    state = await kea.served()
    assert state.generation >= generation
    assert [(host.node, host.bootenv) for host in state.v4.hosts] == [("n1.rack.example", "debian-12-install")]
    await provider.change(lambda session: delete_node(session, id))
    await provider.caught_up()
    assert int((await provider.ask(M1))["address"].split(".")[3]) >= 100


async def test_kea_killed_while_nodes_change_comes_back_and_catches_up_by_itself(provider: Provider) -> None:
    await provider.node("n1.rack.example", M1)
    await provider.caught_up()
    first = provider.kea_pid()
    os.kill(first, signal.SIGKILL)
    await provider.node("n2.rack.example", M2)
    await provider.caught_up()
    assert (await provider.ask(M1))["address"] == "10.77.0.20"
    assert (await provider.ask(M2))["address"] == "10.77.0.21"
    assert provider.kea_pid() != first


async def test_kea_that_cannot_start_is_shown_and_served_by_as_soon_as_it_can(
    provider: Provider, tmp_path: Path
) -> None:
    """The program is gone for a while, as in an upgrade of its package."""
    await provider.node("n1.rack.example", M1)
    await provider.caught_up()
    provider.take_kea_away()
    os.kill(provider.kea_pid(), signal.SIGKILL)
    await provider.node("n2.rack.example", M2)

    async def shown() -> bool:
        rows = await provider.rack.rows(
            "SELECT 1 FROM runs WHERE jig = 'dhcp-database' AND state = 'failed' AND error <> ''"
        )
        return bool(rows)

    await until(shown, "the failed run is shown")
    provider.put_kea_back()
    await provider.caught_up()
    assert (await provider.ask(M2))["address"] == "10.77.0.21"


async def test_an_interface_that_had_no_carrier_is_served_on_as_soon_as_it_has_one(provider: Provider) -> None:
    """A switch that boots later than the server, or a bridge without a machine. Kea looks once, if it is not told to go
    on."""
    provider.wires.cut("admin")
    await provider.node("n1.rack.example", M1)
    await provider.caught_up()
    provider.wires.mend("admin")
    assert (await provider.ask(M1))["address"] == "10.77.0.20"


async def test_the_same_mac_is_never_of_two_nodes(provider: Provider) -> None:
    await provider.node("n1.rack.example", M1)
    with refused(Rule.EXISTS, "n1.rack.example"):
        await provider.node("n2.rack.example", M1)
    await provider.caught_up()
    state = await provider.kea().served()
    assert [(host.node, host.macs) for host in state.v4.hosts] == [("n1.rack.example", (M1,))]


async def test_kea_ends_with_its_server(migrated_url: str, tmp_path: Path) -> None:
    async with providing(tmp_path, migrated_url) as provider:
        await provider.caught_up()
        pid = provider.kea_pid()
        assert is_alive(pid)
    assert not is_alive(pid)
