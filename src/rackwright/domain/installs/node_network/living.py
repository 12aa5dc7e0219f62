"""The network of a node that runs already: what is wanted of it, and where the node may be reached meanwhile."""

from dataclasses import dataclass

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.installs.node_network.devices import ResolvedNetwork
from rackwright.domain.installs.node_network.networkd import PREFIX, render_networkd
from rackwright.domain.installs.node_network.resolve import resolve_network
from rackwright.domain.installs.request import InstallRequest, Problem, RootFile
from rackwright.domain.networks.networks import Category

SECONDS = "network_seconds"
"""The key of the attribute below `provisioner`."""
USUAL_SECONDS = 60


@dataclass(frozen=True)
class NodeNetwork:
    """What is to be in force on a living node."""

    files: tuple[RootFile, ...] = ()
    addresses: tuple[str, ...] = ()
    """Where the node may be reached once it is: addresses that are allocated to it, and no others."""
    was_configured: bool = True
    """Whether the node may have a network of ours already, which goes if none is wanted any more."""


def resolve_node_network(
    request: InstallRequest, *, was_configured: bool
) -> tuple[NodeNetwork | None, tuple[Problem, ...]]:
    """Return the network that is wanted of a living node, and why it cannot be."""
    network, problems = resolve_network(request)
    if problems:
        return None, problems
    files = () if network is None else render_networkd(network)
    return NodeNetwork(files, _reachable_addresses(request, network), was_configured), ()


def _reachable_addresses(request: InstallRequest, network: ResolvedNetwork | None) -> tuple[str, ...]:
    """Return the node's own addresses that it has once the network is in force, those of admin networks first."""
    devices = () if network is None else network.devices
    static = {address for device in devices for address in device.addresses}
    admin = [name for name, known in request.networks.items() if known.category is Category.ADMIN]
    first = [address for name in admin for address in request.addresses.get(name, ())]
    others = [address for own in request.addresses.values() for address in own if address in static]
    return tuple(dict.fromkeys(str(address.ip) for address in (*first, *others)))


def seconds_to_confirm(settings: JsonObject) -> int:
    """Return for how long a node waits for the server before it goes back. `settings` are those below `provisioner`."""
    seconds = settings.get(SECONDS)
    if not isinstance(seconds, int) or isinstance(seconds, bool) or seconds < 1:
        return USUAL_SECONDS
    return seconds


def has_network_files(frozen: JsonObject) -> bool:
    """Return whether an install, as it was frozen, wrote files of a network into the new system."""
    files = frozen.get("files")
    entries = files if isinstance(files, list) else ()
    return any(isinstance(entry, dict) and PREFIX in str(entry.get("path")) for entry in entries)
