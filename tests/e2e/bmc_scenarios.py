"""Machines that find out from inside where their BMCs are: by IPMI, and by what their firmware says of Redfish.

`python -m tests.e2e.bmc_scenarios NAME FOLDER IMAGES`, as `scenarios.py`, with a sledgehammer for real hardware.
"""

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from tests.e2e.scenarios import Site, site_of

from rackwright.lab.hardware import BmcInBand, Hardware

IPMI_PORT = 9002
IPMI_ADDRESS, REDFISH_ADDRESS = "192.0.2.7", "192.0.2.8"
MAC = "52:54:00:aa:bb:cc"
SIMULATOR = """\
name "bmc"
set_working_mc 0x20
startlan 1
  addr 127.0.0.1 9623
  priv_limit admin
  allowed_auths_admin md5
  guid 5261636b777269676874206e31000000
  lan_config_program "{folder}/lan 1"
endlan
serial 15 127.0.0.1 {port} codec VM
user 2 true "admin" "right" admin 10 md5
"""
CONTROLLER = "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\nmc_enable 0x20\n"
LAN = f"""#!/bin/sh
shift 2
for name; do
    case $name in
    ip_addr) echo ip_addr:{IPMI_ADDRESS} ;;
    ip_addr_src) echo ip_addr_src:static ;;
    mac_addr) echo mac_addr:{MAC} ;;
    *_mac_addr) echo "$name:00:00:00:00:00:00" ;;
    *) echo "$name:0.0.0.0" ;;
    esac
done
"""


async def bmc_in_band(folder: Path, images: Path) -> None:
    """Each machine says what its BMC is, it is offered and used for nothing; one without a BMC says nothing."""
    interface = _write_interface(folder)
    hardware = [
        Hardware(1, memory=768, bmc_in_band=BmcInBand(ipmi_port=IPMI_PORT)),
        Hardware(2, memory=768, bmc_in_band=BmcInBand(host_interface=interface)),
        Hardware(3, memory=768),
    ]
    async with site_of(folder, images, hardware) as site, _simulator(folder / "simulator"):
        expected: list[Any] = [
            {"kind": "ipmi", "address": IPMI_ADDRESS, "mac": MAC},
            {"kind": "redfish", "address": REDFISH_ADDRESS},
            None,
        ]
        for racked, bmc in zip(site.rack.machines, expected, strict=True):
            await racked.machine.on()
            node = (await site.discovered(racked))["name"]
            if bmc is not None:
                await site.until(f"{node} says where its BMC is", partial(_reports, site, node, bmc))
            else:
                assert "bmc" not in (await site.facts(node)).discovery
            await racked.machine.off()


async def _reports(site: Site, node: str, bmc: Any) -> bool:
    reported = (await site.facts(node)).discovery.get("bmc")
    assert reported in (None, bmc), reported
    return bool(reported == bmc)


def _write_interface(folder: Path) -> Path:
    """Write what the firmware of a machine says of its BMC, and return the file."""
    folder.mkdir(parents=True)
    file = folder / "host-interface"
    file.write_bytes(_host_interface(REDFISH_ADDRESS))
    return file


def _host_interface(address: str) -> bytes:
    """Return an SMBIOS structure of type 42: a network interface with a Redfish service at an address."""
    device = b"\x02\x6b\x1d\x12\x34\x04\x00abc"
    packed = IPv4Address(address).packed.ljust(16, b"\0")
    service = bytes(16) + b"\x01\x01" + bytes(32) + b"\x01\x01" + packed + bytes(16)
    service += (443).to_bytes(2, "little") + bytes(4) + b"\x00"
    body = bytes([0x40, len(device)]) + device + bytes([1, 0x04, len(service)]) + service
    return bytes([42, 4 + len(body)]) + b"\x2a\x42" + body + b"\0\0"


@contextlib.asynccontextmanager
async def _simulator(folder: Path) -> AsyncIterator[None]:
    """Run OpenIPMI's simulator of a BMC, which a machine speaks with as with its own."""
    (folder / "state").mkdir(parents=True)
    (folder / "lan").write_text(LAN)
    (folder / "lan").chmod(0o755)
    (folder / "lan.conf").write_text(SIMULATOR.format(folder=folder, port=IPMI_PORT))
    (folder / "controller").write_text(CONTROLLER)
    process = await asyncio.create_subprocess_exec(
        *("ipmi_sim", "-n", "-c", f"{folder}/lan.conf", "-f", f"{folder}/controller", "-s", f"{folder}/state"),
        stdin=asyncio.subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


SCENARIOS = {scenario.__name__: scenario for scenario in (bmc_in_band,)}

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(SCENARIOS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3])))
