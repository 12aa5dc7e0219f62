"""A network of servers on a single machine: a network namespace for each server, and one for the bridge between them.

The machine's own network is not touched, so any number of these networks may exist at a time. They can be disturbed as
real networks are: cables pulled, parts split off, packets lost. What runs inside is `mesh_fleet.py`.
"""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rackwright.mesh.errors import MeshError

SUBNET = "10.77.0"
NAME = re.compile(r"rw([0-9]+)-")


class NoNamespaces(MeshError):
    """Network namespaces cannot be made here; be root, with iproute2 installed"""

    code = "no_namespaces"


class Network:
    """A network of `servers`, each in a namespace of its own and with the address `address(server)`."""

    def __init__(self, servers: Sequence[str], prefix: str | None = None) -> None:
        self.servers = list(servers)
        # The creator's process id is in the name, so that what a killed creator left differs from what is in use.
        self.prefix = prefix or f"rw{os.getpid()}"
        self.switch = f"{self.prefix}-switch"

    def namespace(self, server: str) -> str:
        return f"{self.prefix}-{server}"

    def address(self, server: str) -> str:
        return f"{SUBNET}.{self.servers.index(server) + 1}"

    def command(self, server: str, arguments: Sequence[str]) -> list[str]:
        """Return the arguments that run a program on a server. `ip` executes the program under the same process id."""
        return ["ip", "netns", "exec", self.namespace(server), *arguments]

    def up(self) -> None:
        _ip("netns", "add", self.switch)
        for bridge in ("br0", "br1"):
            _ip("-n", self.switch, "link", "add", bridge, "type", "bridge", "forward_delay", "0")
            _ip("-n", self.switch, "link", "set", bridge, "up")
        for server in self.servers:
            self._plug_in(server)

    def down(self) -> None:
        """Remove every namespace; their links and bridges go with them. May be called twice."""
        existing = set(_namespaces())
        for namespace in [*map(self.namespace, self.servers), self.switch]:
            if namespace in existing:
                _ip("netns", "del", namespace)

    def cut(self, server: str) -> None:
        """Pull a server's cable: packets vanish, and neither end notices."""
        _ip("-n", self.switch, "link", "set", server, "down")

    def mend(self, server: str) -> None:
        """Plug a server's cable in again."""
        _ip("-n", self.switch, "link", "set", server, "up")

    def make_card_again(self, server: str) -> None:
        """Delete a server's network card and make it again: it has its IPv4 address and its name, and is another."""
        _ip("-n", self.namespace(server), "link", "del", "eth0")
        self._make_card(server)

    def split(self, away: Sequence[str]) -> None:
        """Move these servers to a bridge of their own: they reach each other, and no other server."""
        for server in away:
            _ip("-n", self.switch, "link", "set", server, "master", "br1")

    def heal(self) -> None:
        """Undo every cut, split and loss."""
        for server in self.servers:
            _ip("-n", self.switch, "link", "set", server, "master", "br0")
            self.mend(server)
            self.drop_packets(server, 0)

    def drop_packets(self, server: str, percent: int) -> None:
        """Drop this percentage of the packets that come to a server, at random."""
        rules = "add table inet loss\ndelete table inet loss\n"
        if percent:
            rules += "add table inet loss\nadd chain inet loss input { type filter hook input priority 0; }\n"
            rules += f'add rule inet loss input iifname != "lo" numgen random mod 100 < {percent} drop\n'
        _run(self.command(server, ["nft", "-f", "-"]), rules)

    def processes(self, server: str) -> list[int]:
        return [int(line) for line in _ip("netns", "pids", self.namespace(server)).split()]

    def _plug_in(self, server: str) -> None:
        namespace = self.namespace(server)
        _ip("netns", "add", namespace)
        _ip("-n", namespace, "link", "set", "lo", "up")
        self._make_card(server)

    def _make_card(self, server: str) -> None:
        namespace = self.namespace(server)
        _ip("-n", namespace, "link", "add", "eth0", "type", "veth", "peer", "name", server, "netns", self.switch)
        _ip("-n", namespace, "addr", "add", f"{self.address(server)}/24", "dev", "eth0")
        _ip("-n", namespace, "link", "set", "eth0", "up")
        _ip("-n", self.switch, "link", "set", server, "master", "br0")
        _ip("-n", self.switch, "link", "set", server, "up")


def sweep() -> None:
    """Remove the namespaces of creators that no longer run: a process that was killed could not clean up."""
    for namespace in _namespaces():
        match = NAME.match(namespace)
        if match and not Path(f"/proc/{match[1]}").exists():
            _ip("netns", "del", namespace)


def _namespaces() -> list[str]:
    return [line.split()[0] for line in _ip("netns", "list").splitlines() if line]


def _ip(*arguments: str) -> str:
    return _run(["ip", *arguments])


def _run(arguments: list[str], typed: str = "") -> str:
    try:
        done = subprocess.run(arguments, input=typed, capture_output=True, text=True, check=False, timeout=30)
    except FileNotFoundError as problem:
        raise NoNamespaces(f"{arguments[0]} is not installed; install iproute2 and nftables") from problem
    if done.returncode:
        raise NoNamespaces(f"{' '.join(arguments)} failed: {done.stderr.strip() or done.returncode}")
    return done.stdout
