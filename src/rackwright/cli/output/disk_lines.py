"""The disks of a node, a line each, with what is on it, for `node show`.

Only people get these lines; programs get the node's discovery as it is.
"""

from typing import Any

from rackwright.cli.output.cable_lines import Row, with_links
from rackwright.domain.installs.disks import read_disks
from rackwright.domain.installs.wipes import describe_disk


def with_hardware(node: Row) -> dict[str, Any]:
    """Return a node with a line for each disk and link, in place of the parts of its discovery they are made from."""
    discovery = node.get("discovery")
    reported = discovery.get("disks") if isinstance(discovery, dict) else None
    lines: dict[str, str] = {}
    for disk in read_disks(reported):
        device = f"{disk.device}, " if disk.device else ""
        twins = f"; {', '.join(disk.namesakes)} have the same name" if disk.namesakes else ""
        lines[f"disk {disk.name}"] = f"{device}{describe_disk(disk)}{twins}"
    shown = with_links(node)
    if not lines:
        return shown
    others = {name: value for name, value in shown["discovery"].items() if name != "disks"}
    return {**shown, **lines, "discovery": others}
