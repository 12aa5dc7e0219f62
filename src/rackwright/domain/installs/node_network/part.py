"""The network of an install: files that the installer writes, in force from the first boot."""

from rackwright.domain.installs.node_network.networkd import render_networkd
from rackwright.domain.installs.node_network.resolve import resolve_network
from rackwright.domain.installs.request import InstallPart, InstallRequest


def configure_network(request: InstallRequest) -> InstallPart:
    """Return the files of the network that is wanted; none if nobody wants one, and the image's own is used."""
    network, problems = resolve_network(request)
    return InstallPart(files=() if network is None else render_networkd(network), problems=problems)
