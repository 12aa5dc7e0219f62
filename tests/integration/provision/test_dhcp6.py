"""DHCPv6 by a real Kea behind our relay, to real clients in network namespaces."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from importlib.resources import files
from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path
from typing import Any

import pytest
from tests.support.machines.boot_provider import Provider, program_of, providing, run_json
from tests.support.mesh.netns import network
from tests.support.waiting import PATIENCE, until

from rackwright.domain.networks.dhcp import DhcpState, DhcpSubnet
from rackwright.domain.networks.dhcp6 import Dhcp6State, Dhcp6Subnet, DhcpStates
from rackwright.provision.kea import Kea
from rackwright.store.machines.boot import set_bootenv

M1, STRANGER = "52:54:00:00:00:01", "52:54:00:ff:ff:01"
FIRMWARE, IPXE, SYSTEM = f"0004{'11' * 16}", f"0004{'22' * 16}", f"0002{'33' * 12}"
"""How the programs that run on one machine, one after the other, name themselves."""
AGENT = Path(str(files("rackwright.provision.images"))) / "agent"
CLIENT = Path(__file__).parents[2] / "support" / "machines" / "dhcp6_client.py"


@pytest.fixture
async def provider(migrated_url: str, tmp_path: Path) -> AsyncIterator[Provider]:
    async with providing(tmp_path, migrated_url) as made:
        address = ["ip", "address", "add", "fd77::1/64", "dev", "eth0", "nodad"]
        await _run(made, "admin", address)
        yield made


async def _run(provider: Provider, server: str, words: list[str]) -> None:
    await run_json(provider.wires.command(server, ["sh", "-c", f"{' '.join(words)} && echo 0"]))


async def ask(provider: Provider, mac: str, duid: str, iaid: str, *more: str) -> Any:
    words = [sys.executable, str(CLIENT), "eth0", mac, duid, iaid, "--seconds", str(PATIENCE), *more]
    return await run_json(provider.wires.command("client", words))


async def test_a_machine_keeps_its_address_whatever_its_programs_call_themselves(provider: Provider) -> None:
    await provider.node("n1.rack.example", M1)
    await provider.caught_up()
    firmware = await ask(provider, M1, FIRMWARE, "0000000a", "--arch", "7")
    ipxe = await ask(provider, M1, IPXE, "0000000b", "--arch", "7", "--ipxe")
    system = await ask(provider, M1, SYSTEM, "0000000c")
    assert [given["address"] for given in (firmware, ipxe, system)] == ["fd77::20"] * 3
    assert [given["duid"] for given in (firmware, ipxe, system)] == [FIRMWARE, IPXE, SYSTEM]
    assert [given["iaid"] for given in (firmware, ipxe, system)] == ["0000000a", "0000000b", "0000000c"]
    assert firmware["boot_url"] == "tftp://[fd77::1]/shimx64.efi"
    assert ipxe["boot_url"] == "http://[fd77::1]:8091/boot/${netX/mac:hexhyp}"
    assert system["boot_url"] == ""


async def test_a_machine_is_served_on_an_interface_that_was_made_again(provider: Provider) -> None:
    await provider.node("n1.rack.example", M1)
    await provider.caught_up()
    assert (await ask(provider, M1, FIRMWARE, "0000000a"))["address"] == "fd77::20"
    await asyncio.to_thread(provider.wires.make_card_again, "admin")
    await _run(provider, "admin", ["ip", "address", "add", "fd77::1/64", "dev", "eth0", "nodad"])
    assert (await ask(provider, M1, FIRMWARE, "0000000a"))["address"] == "fd77::20"


async def test_firmware_that_boots_by_http_gets_its_own_word_back(provider: Provider) -> None:
    await provider.node("n1.rack.example", M1)
    await provider.caught_up()
    given = await ask(provider, M1, FIRMWARE, "0000000a", "--arch", "16")
    assert given["boot_url"] == "http://[fd77::1]:8091/files/sledgehammer/shimx64.efi"
    assert bytes.fromhex(given["vendor_class"]).endswith(b"HTTPClient")


async def test_firmware_of_arm64_gets_the_loader_that_it_can_start(provider: Provider) -> None:
    await provider.node("n1.rack.example", M1)
    await provider.caught_up()
    tftp = await ask(provider, M1, FIRMWARE, "0000000a", "--arch", "11")
    assert (tftp["address"], tftp["boot_url"]) == ("fd77::20", "tftp://[fd77::1]/shimaa64.efi")
    http = await ask(provider, M1, FIRMWARE, "0000000a", "--arch", "19")
    assert http["boot_url"] == "http://[fd77::1]:8091/files/sledgehammer-arm64/shimaa64.efi"
    assert bytes.fromhex(http["vendor_class"]).endswith(b"HTTPClient")


async def test_sledgehammer_has_the_address_that_is_reserved_for_its_machine(
    provider: Provider, tmp_path: Path
) -> None:
    await provider.node("n1.rack.example", M1)
    await provider.caught_up()
    for name in ("dhcpcd.conf", "dhcpcd-hook"):  # as they are in the image: all can be run
        (tmp_path / name).write_text((AGENT / name).read_text().replace("/lib/rackwright", str(tmp_path)))
        (tmp_path / name).chmod(0o755)
    (tmp_path / "resolv.conf").touch()
    # In a mount namespace of its own, since it writes where a system has such files.
    script = f"""
        exec 3>&1 >&2
        mount -t tmpfs none /run && mount -t tmpfs none /var/lib
        mount --bind {tmp_path}/resolv.conf /etc/resolv.conf
        ip link set eth0 down && ip link set eth0 address {M1} && ip link set eth0 up
        dhcpcd -q -6 -w -t {PATIENCE:.0f} -f {tmp_path}/dhcpcd.conf eth0
        status=$?
        dhcpcd -6 -x eth0
        echo "[$status, \\"$(cat /run/address)\\"]" >&3
    """
    command = provider.wires.command("client", ["unshare", "--mount", "sh", "-c", script])
    assert await run_json(command) == [0, "fd77::20"]


@pytest.mark.parametrize("reason", ["BOUND6", "RENEW6", "REBIND6", "REBOOT6"])
async def test_sledgehammer_takes_the_address_that_has_time_left(tmp_path: Path, reason: str) -> None:
    """A machine that was let in is given its own address, and the one that it had as a stranger is taken back."""
    hook = (AGENT / "dhcpcd-hook").read_text().replace("/run/address", f"{tmp_path}/address")
    lease = {
        "reason": reason,
        "new_dhcp6_ia_na1_ia_addr1": "fd77::20",
        "new_dhcp6_ia_na1_ia_addr1_vltime": "900",
        "new_dhcp6_ia_na1_ia_addr2": "fd77::100",
        "new_dhcp6_ia_na1_ia_addr2_vltime": "0",
        "new_dhcp6_name_servers": "fd77::1 fd77::2",
        "new_dhcp6_domain_search": "rack.example",
    }
    process = await asyncio.create_subprocess_exec(
        *("busybox", "sh", "-s"), stdin=asyncio.subprocess.PIPE, env=os.environ | lease
    )
    await process.communicate(hook.replace("/etc/resolv.conf", f"{tmp_path}/resolv.conf").encode())
    assert process.returncode == 0
    assert (tmp_path / "address").read_text() == "fd77::20\n"
    assert (tmp_path / "resolv.conf").read_text() == "search rack.example\nnameserver fd77::1\nnameserver fd77::2\n"


@pytest.mark.parametrize("boot_address", ["10.77.0.1", "fd77::1"])
async def test_machines_are_told_what_to_boot_only_in_the_family_of_the_machine_interface(
    tmp_path: Path, boot_address: str
) -> None:
    v4 = DhcpState(1, (DhcpSubnet(1, "admin", IPv4Network("10.77.0.0/24")),))
    v6 = Dhcp6State(1, (Dhcp6Subnet(1, "admin", IPv6Network("fd77::/64")),))
    with network(["admin"]) as wires:
        await run_json(wires.command("admin", ["sh", "-c", "ip address add fd77::1/64 dev eth0 nodad && echo 0"]))
        boot_addresses = [ip_address(boot_address)]
        kea = Kea(tmp_path, ["eth0"], launcher=wires.command("admin", []), boot_addresses=boot_addresses)
        try:
            await kea.publish(DhcpStates(v4, v6))
            assert await kea.served() == DhcpStates(v4, v6)
            configs = [(tmp_path / name).read_text() for name in ("kea/kea-dhcp4.json", "kea6/kea-dhcp6.json")]
        finally:
            await kea.stop()
    http = b"http://".hex().upper()
    assert ["boot-file-name" in configs[0], http in configs[1]] == ["." in boot_address, ":" in boot_address]


async def test_a_stranger_gets_no_address_where_there_is_none_for_strangers(provider: Provider) -> None:
    await provider.node("n1.rack.example", M1)
    await provider.caught_up()
    assert (await ask(provider, STRANGER, SYSTEM, "0000000c"))["address"] is None


async def test_both_families_serve_a_generation_before_it_is_recorded(provider: Provider) -> None:
    id = await provider.node("n1.rack.example", M1)
    await provider.caught_up()
    generation = await provider.change(lambda session: set_bootenv(session, id, "debian-12-install"))
    await provider.caught_up()
    states = await provider.kea().served()
    assert min(states.v4.generation, states.v6.generation) >= generation
    assert [(host.node, host.bootenv) for host in states.v6.hosts] == [("n1.rack.example", "debian-12-install")]


@pytest.mark.parametrize("program", ["kea-dhcp6", "relay"])
async def test_what_is_killed_comes_back_and_serves(provider: Provider, program: str) -> None:
    await provider.node("n1.rack.example", M1)
    await provider.caught_up()
    pids = provider.wires.processes("admin")
    [killed] = [pid for pid in pids if _is(pid, program)]
    os.kill(killed, signal.SIGKILL)

    async def is_back() -> bool:
        return any(_is(pid, program) for pid in provider.wires.processes("admin") if pid != killed)

    await until(is_back, f"{program} is back")
    assert (await ask(provider, M1, SYSTEM, "0000000c"))["address"] == "fd77::20"


def _is(pid: int, program: str) -> bool:
    if program == "kea-dhcp6":
        return program_of(pid) == program
    try:
        return b"dhcp6_relay" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
