"""How a machine finds out where its BMC is: the agent's own lines, with ipmitool asking a simulated BMC."""

import asyncio
import base64
import json
import shutil
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from tests.support.machines.ipmi_simulator import PASSWORD, USER, simulated_bmc

from rackwright.domain.machines.reported_bmc import read_reported_controller

AGENT = files("rackwright.provision.images") / "agent"
MAC = "52:54:00:aa:bb:cc"
LAN = f"""#!/bin/sh
# What the BMC is set to on its network: PORT get NAME...
shift 2
for name; do
    case $name in
    ip_addr) echo ip_addr:192.0.2.7 ;;
    ip_addr_src) echo ip_addr_src:static ;;
    mac_addr) echo mac_addr:{MAC} ;;
    *_mac_addr) echo "$name:00:00:00:00:00:00" ;;
    *) echo "$name:0.0.0.0" ;;
    esac
done
"""


@pytest.fixture
async def in_band(tmp_path: Path) -> AsyncIterator[Path]:
    """A folder with an ipmitool that asks a BMC of this test, as the one in a machine asks the machine's own."""
    lan = tmp_path / "lan"
    lan.write_text(LAN)
    lan.chmod(0o755)
    async with simulated_bmc(tmp_path / "bmc", lan_program=str(lan)) as bmc:
        host, _, port = bmc.relay.address.rpartition(":")
        program = tmp_path / "bin" / "ipmitool"
        program.parent.mkdir()
        login = f"-I lanplus -C 3 -H {host} -p {port} -U {USER} -P {PASSWORD}"
        program.write_text(f'#!/bin/sh\nexec {shutil.which("ipmitool")} {login} "$@"\n')
        program.chmod(0o755)
        yield program.parent


async def _find(tmp_path: Path, *entries: str, programs: str = "", device: bool = True) -> dict[str, Any]:
    """What a machine finds whose firmware has these SMBIOS entries."""
    for entry in entries:
        (tmp_path / "dmi" / entry).mkdir(parents=True)
        (tmp_path / "dmi" / entry / "raw").write_bytes(entry.encode())
    if device:
        (tmp_path / "ipmi0").touch()
    lines = [
        *(f"export PATH={programs}:$PATH" for _ in range(bool(programs))),
        *((AGENT / name).read_text() for name in ("common", "bmc")),
        f"dmi_entries={tmp_path}/dmi ipmi_device={tmp_path}/ipmi0 ipmi_patience=0",
        "modprobe() { :; }",
        "bmc_announced && echo announced || echo not announced",
        "find_bmc",
    ]
    process = await asyncio.create_subprocess_exec(
        "busybox", "sh", "-s", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate("\n".join(lines).encode())
    announced, _, found = output.decode().partition("\n")
    return {"announced": announced == "announced", **json.loads(found)}


async def test_ipmi_tells_where_the_bmc_is(tmp_path: Path, in_band: Path) -> None:
    found = await _find(tmp_path, "38-0", programs=str(in_band))
    assert found == {
        "announced": True,
        "ipmi": True,
        "address": "192.0.2.7",
        "address6": "",
        "mac": MAC,
        "host_interfaces": [],
    }
    assert read_reported_controller(found) == {"kind": "ipmi", "address": "192.0.2.7", "mac": MAC}


async def test_host_interfaces_are_passed_on_as_they_are(tmp_path: Path) -> None:
    found = await _find(tmp_path, *(f"42-{number}" for number in range(9)))
    assert [base64.b64decode(entry) for entry in found["host_interfaces"]] == [b"42-0", b"42-1", b"42-2", b"42-3"]
    assert found["announced"]


async def test_a_bmc_without_its_driver_is_known_to_be_there(tmp_path: Path) -> None:
    found = await _find(tmp_path, "38-0", device=False)
    assert (found["ipmi"], found["address"]) == (True, "")


async def test_a_machine_without_a_bmc_waits_for_none(tmp_path: Path) -> None:
    found = await _find(tmp_path, "1-0", "4-0")
    assert not found["announced"]
    assert read_reported_controller(found) == {}
