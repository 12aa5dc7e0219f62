"""What is run on a machine without a BMC so that its firmware boots from the network next. A firmware is not there, so
its tool is played here, with what it says of a real one."""

import os
import subprocess
from pathlib import Path

from rackwright.hammers.ssh import NETWORK_NEXT

ENTRIES = """\
BootCurrent: 0004
Timeout: 0 seconds
BootOrder: 0004,0003,0002,0000
Boot0000* UiApp\tFvVol(7cb8bdc9-f8eb-4f34-aaea-3ee4af6516a1)/FvFile(462caa21-7614-4503-836e-8ab6f4662331)
Boot0002* UEFI PXEv4 (MAC:525400770001)\tPciRoot(0x0)/Pci(0x2,0x0)/MAC(525400770001,1)/IPv4(0.0.0.0)0,0)N.....YM....R,Y.
Boot0003  UEFI HTTPv4 (MAC:525400770001)\tPciRoot(0x0)/Pci(0x2,0x0)/MAC(525400770001,1)/IPv4(0.0.0.0)/Uri()
Boot0004* rackwright 1\tHD(1,GPT,6f1d5e0f-1c8b-4c3b-9d61-1a0a5d1e9f5e,0x800,0x80000)/File(\\EFI\\debian\\shimx64.efi)
"""


def _run(folder: Path, efibootmgr: str | None) -> str:
    """Run it with a tool that answers so; return with what the tool was called to change something."""
    calls = folder / "calls"
    calls.touch()
    for program in ("sed", "tr", "grep"):
        (folder / program).symlink_to(f"/usr/bin/{program}")
    if efibootmgr is not None:
        (folder / "entries").write_text(ENTRIES)
        (folder / "efibootmgr").write_text(f"#!/bin/sh\n{efibootmgr}\n")
        (folder / "efibootmgr").chmod(0o755)
    environment = {**os.environ, "PATH": str(folder), "FOLDER": str(folder)}
    done = subprocess.run(["/bin/sh", "-c", NETWORK_NEXT], env=environment, check=False, capture_output=True)
    assert done.returncode == 0, "a restart goes on whatever the firmware says"
    return calls.read_text()


PLAYED = (
    '[ "$1" = -v ] || { echo "$@" >>"$FOLDER/calls"; exit 0; }; while read -r l; do echo "$l"; done <"$FOLDER/entries"'
)


def test_the_first_entry_of_a_network_card_that_is_in_use_is_next(tmp_path: Path) -> None:
    assert _run(tmp_path, PLAYED) == "-q -n 0002\n"


def test_a_machine_with_bios_or_without_the_tool_is_restarted_all_the_same(tmp_path: Path) -> None:
    assert _run(tmp_path, "echo 'EFI variables are not supported on this system.' >&2; exit 2") == ""


def test_a_system_without_the_tool_is_restarted_all_the_same(tmp_path: Path) -> None:
    assert _run(tmp_path, None) == ""
