"""The files of systemd-networkd, compared with golden ones. `REWRITE=1` writes them anew, to be read by a person."""

import os
from pathlib import Path

import pytest
from tests.unit.domain.installs.node_network.scene import BOND, BRIDGE, request

from rackwright.domain.installs.node_network.networkd import render_networkd
from rackwright.domain.installs.node_network.resolve import resolve_network

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize(("name", "document"), [("bond", BOND), ("bridge", BRIDGE)])
def test_the_files_are_the_golden_ones(name: str, document: str) -> None:
    network, _ = resolve_network(request(document))
    assert network is not None
    shown = "\n".join(f"# {file.path} {file.mode:o}\n{file.content}" for file in render_networkd(network))
    golden = GOLDEN / f"{name}.networkd"
    if os.environ.get("REWRITE"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(shown)
    assert shown == golden.read_text()


def test_the_files_come_before_that_of_the_image() -> None:
    network, _ = resolve_network(request(BOND))
    assert network is not None
    names = [Path(file.path).name for file in render_networkd(network) if "/systemd/" in file.path]
    assert max(names) < "10-dhcp.network"
