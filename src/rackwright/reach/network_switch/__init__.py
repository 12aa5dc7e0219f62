"""The dead man's switch of a node's network: what is sent to the node, and what the switch there answers.

`switch` is the shell script that runs on the node. It is used by the jig `node-network`, and must never know the store.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath

from rackwright.domain.installs.request import RootFile
from rackwright.domain.runs import Run
from rackwright.reach.parcel import NodeFolders, Parcel, pack_files

FOLDER = Path(__file__).parent
SWITCH = "switch"
UNIT = "rackwright-network-switch.service"
STATE = "/etc/rackwright/network-switch"
"""The folder of the switch on the node. Below /etc, which is there before anything else is mounted."""
ARMED_KEY = "network_switch"
"""The attribute that the sent script writes: whether it had to change anything."""
ARM = """\
#!/bin/sh
state=$(sh "$RACKWRIGHT_FOLDER/more/{switch}" arm "$RACKWRIGHT_RUN" {seconds} "$RACKWRIGHT_FOLDER/more") || exit 1
write_attribute {key} "$state"
"""
_ANSWER = re.compile(r"(applied|back|armed|confirmed|unknown)(?: ([ -~]{0,400}))?")


class SwitchState(StrEnum):
    """How far a change is, as the switch on the node says."""

    ARMED = "armed"
    """The old files are kept and the clock runs; the new ones are being put in force."""
    APPLIED = "applied"
    CONFIRMED = "confirmed"
    BACK = "back"
    """The old network is in force again."""
    UNKNOWN = "unknown"
    """It is of another change, or the switch is not there."""


@dataclass(frozen=True)
class SwitchAnswer:
    state: SwitchState
    seconds: int = 0
    """Since when a change is applied."""
    reason: str = ""
    """Why the node went back."""


def pack_switch(run: Run, files: Sequence[RootFile], seconds: int, folders: NodeFolders, nonce: str) -> Parcel:
    """Return the parcel that has a node put these files in force, and take them back after some seconds."""
    script = ARM.format(switch=SWITCH, seconds=seconds, key=ARMED_KEY).encode()
    more = {name: (FOLDER / name).read_bytes() for name in (SWITCH, UNIT)}
    more |= {PurePosixPath(file.path).name: file.content.encode() for file in files}
    return pack_files(run, [("10-network.sh", script)], more, folders, nonce)


def switch_command(command: str, run: Run) -> str:
    """Return the shell line that asks the switch on a node. A node that has none answers that it knows nothing."""
    switch = f"{STATE}/{SWITCH}"
    line = f"[ -e {switch} ] || {{ echo {SwitchState.UNKNOWN}; exit; }}; exec sh {switch} {command} {run.id}"
    return f"exec sh -c {shlex.quote(line)}"


def read_answer(text: str) -> SwitchAnswer:
    """Return what the switch said. Anything that is no answer of it counts as not knowing."""
    lines = text.strip().splitlines()
    match = _ANSWER.fullmatch(lines[-1].strip()) if lines else None
    if match is None:
        return SwitchAnswer(SwitchState.UNKNOWN)
    state, detail = SwitchState(match[1]), match[2] or ""
    if state is SwitchState.APPLIED:
        return SwitchAnswer(state, int(detail) if detail.isascii() and detail.isdigit() else 0)
    return SwitchAnswer(state, reason=detail)
