"""All jigs of a server, by kind. A new jig is a line here."""

from dataclasses import dataclass

import httpx

from rackwright.jigs.base import Jig
from rackwright.jigs.boot_server import BootServerJig, Look
from rackwright.jigs.dhcp_database import BootProvider, DhcpDatabaseJig, DhcpServerJig, Entries, Record
from rackwright.jigs.dns_database import DnsDatabaseJig, DnsServerJig, Names, NameServer
from rackwright.jigs.lab import LabJig
from rackwright.jigs.mesh import Membership, MeshJig
from rackwright.jigs.network import Assign, NetworkJig
from rackwright.jigs.noop import NoopJig
from rackwright.jigs.os_install import OpenAttempt, OsInstallJig
from rackwright.jigs.role_provided import RoleProvidedJig, Transitions
from rackwright.jigs.script import ScriptJig
from rackwright.jigs.simulate import SimulateJig
from rackwright.jigs.ssh_access import SshAccessJig
from rackwright.jigs.state import StateJig, Tree
from rackwright.reach.mesh_states import MeshWay


@dataclass(frozen=True)
class Equipment:
    """What the jigs need of the server they work in."""

    transitions: Transitions
    open_attempt: OpenAttempt
    boot: Look
    entries: Entries
    boot_provider: BootProvider
    record_served: Record
    names: Names
    name_server: NameServer
    assign: Assign
    ssh_access: SshAccessJig
    script: ScriptJig
    state_tree: Tree
    membership: Membership
    mesh: MeshWay | None
    """The way through the mesh, if this server knows of one."""
    lab_client: httpx.AsyncClient | None
    """The way to simulated machines, if this server has any."""


def all_jigs(equipment: Equipment) -> dict[str, Jig]:
    lab: dict[str, Jig] = {} if equipment.lab_client is None else {"lab": LabJig(equipment.lab_client)}
    return lab | {
        "noop": NoopJig(),
        "role-provided": RoleProvidedJig(equipment.transitions),
        "simulate": SimulateJig(),
        "ssh-access": equipment.ssh_access,
        "script": equipment.script,
        "state": StateJig(equipment.state_tree, equipment.script, equipment.mesh),
        "boot-server": BootServerJig(equipment.boot),
        "os-install": OsInstallJig(equipment.open_attempt),
        "dhcp-server": DhcpServerJig(equipment.boot_provider),
        "dhcp-database": DhcpDatabaseJig(equipment.entries, equipment.boot_provider, equipment.record_served),
        "dns-server": DnsServerJig(equipment.name_server),
        "dns-database": DnsDatabaseJig(equipment.names, equipment.name_server, equipment.record_served),
        "network": NetworkJig(equipment.assign),
        "mesh": MeshJig(equipment.membership),
    }
