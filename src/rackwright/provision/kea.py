"""ISC Kea as this host's DHCP servers, one a family: run as child processes, configured over their control sockets, and
read back.

Their configuration is always replaced whole. Without an interface to serve on, no Kea is run, and the published state
is only remembered: so a host in a network with another DHCP server never answers by accident. The DHCPv6 server, and
the relay through which it hears machines, are run once there is an IPv6 subnet to serve.
"""

import asyncio
import hashlib
import json
import logging
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

from rackwright.domain.networks.dhcp import DhcpState, KeaHost, check_interface, parse_kea_config, render_kea_config
from rackwright.domain.networks.dhcp6 import (
    KEA_PORT,
    RELAY_PORT,
    Dhcp6State,
    DhcpStates,
    Kea6Host,
    parse_kea6_config,
    render_kea6_config,
)
from rackwright.domain.networks.networks import Address
from rackwright.private_files import make_private_folder, write_private_file
from rackwright.provision.daemon import Daemon, DaemonFailed, socket_path
from rackwright.provision.host_addresses import interface_numbers, own_addresses
from rackwright.provision.served_subnets import read_subnets, subnets_file, write_subnets

log = logging.getLogger(__name__)

PROGRAM = "kea-dhcp4"
PROGRAM6 = "kea-dhcp6"
ANSWER_TIME = 60.0
LOOK = 5.0
"""Seconds between two looks whether the interfaces are still the same."""


class KeaProcess:
    """One Kea: its process, its files and its control socket."""

    def __init__(
        self, command: Sequence[str], folder: Path, config: Path, empty_config: Callable[[], dict[str, Any]]
    ) -> None:
        """`empty_config`: returns a configuration that serves nothing, which Kea starts with on any host."""
        self._folder = folder
        self._config = config
        self._empty_config = empty_config
        self._socket = socket_path(folder, "control")
        self._changing = asyncio.Lock()
        """Held while the configuration is replaced, so that no older one is put back."""
        self.daemon = Daemon(
            [*command, "-c", str(config)],
            folder,
            self._socket,
            self._is_answering,
            environment={"KEA_PIDFILE_DIR": str(folder), "KEA_LOCKFILE_DIR": str(folder)},
            on_failed_start=self._write_empty_config,
        )

    async def start(self) -> str:
        """Start Kea if it does not run, and return its version."""
        if not self.daemon.running:
            self._prepare_files()
        await self.daemon.ensure_ready()
        return str((await self._send("version-get")).get("text"))

    async def configure(self, config: dict[str, Any]) -> None:
        """Replace the whole configuration, also for the next start."""
        async with self._changing:
            await self._send_checked("config-test", config)
            await self._send_checked("config-set", config)
            self._write(config)

    async def reopen_sockets(self) -> None:
        """Have Kea look for its interfaces anew, by the configuration that it has."""
        async with self._changing:
            config = json.loads(self._config.read_bytes())
            await self._send_checked("config-test", config)  # which fails while an interface is not there
            await self._send_checked("config-set", config)

    async def configuration(self) -> dict[str, Any]:
        """Return the configuration that Kea runs with, asked of Kea itself."""
        config: dict[str, Any] = (await self._send_checked("config-get"))["arguments"]
        return config

    # --- files

    def _prepare_files(self) -> None:
        """Make sure that there is a configuration to start with.

        Kea starts with the last one, so that after a crash it serves at once.
        """
        make_private_folder(self._folder)
        if not self._config.exists():
            self._write_empty_config()

    def _write_empty_config(self) -> None:
        """Let Kea start without anything to serve: its last configuration may no longer fit this host."""
        self._write(self._empty_config())

    def _write(self, config: dict[str, Any]) -> None:
        write_private_file(self._config, json.dumps(config).encode())

    # --- control socket

    async def _is_answering(self) -> bool:
        try:
            async with asyncio.timeout(2):
                return (await self._send("status-get")).get("result") == 0
        except (DaemonFailed, TimeoutError):
            return False

    async def _send_checked(self, command: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            async with asyncio.timeout(ANSWER_TIME):
                response = await self._send(command, arguments)
        except TimeoutError:
            raise DaemonFailed(f"Kea did not answer {command} within {ANSWER_TIME:g} s.") from None
        if response.get("result") != 0:
            raise DaemonFailed(f"Kea refused {command}: {str(response.get('text'))[:1000]}")
        return response

    async def _send(self, command: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
        request = {"command": command} if arguments is None else {"command": command, "arguments": arguments}
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._socket), limit=2**30)
            try:
                writer.write(json.dumps(request).encode())
                await writer.drain()
                response: dict[str, Any] = json.loads(await reader.read())
            finally:
                writer.close()
        except OSError as error:
            raise DaemonFailed(f"Kea does not answer: {error.strerror or error}.") from None
        except ValueError:
            raise DaemonFailed(f"Kea ended in the middle of its answer to {command}.") from None
        return response


def _boot_addresses6(addresses: Sequence[Address]) -> tuple[IPv6Address, ...] | None:
    """Return the IPv6 addresses at which machines find what they boot; None if that is all of this host's."""
    own = tuple(address for address in addresses if isinstance(address, IPv6Address))
    return None if not addresses or any(address.is_unspecified for address in own) else own


class Kea:
    """The DHCP servers of this host, by Kea; a boot provider."""

    def __init__(
        self,
        home: Path,
        interfaces: Sequence[str] = (),
        http_port: int = 80,
        dns: Address | None = None,
        *,
        program: str = PROGRAM,
        program6: str = PROGRAM6,
        launcher: Sequence[str] = (),
        boot_addresses: Sequence[Address] = (),
    ) -> None:
        """`launcher`: the command that runs the programs, such as `ip netns exec NAME`, to serve in another
        namespace. `boot_addresses`: where machines find what they boot; without any, at all of this host's."""
        self._interfaces = tuple(check_interface(name) for name in interfaces)
        self._launcher = tuple(launcher)
        self._published = DhcpStates()
        folder = home / "kea"
        self._host = KeaHost(
            str(socket_path(folder, "control")),
            str(folder / "leases4.csv"),
            self._interfaces,
            http_port=http_port,
            dns=dns if isinstance(dns, IPv4Address) else None,
            boots=not boot_addresses or any(isinstance(address, IPv4Address) for address in boot_addresses),
        )
        self._kea4 = KeaProcess(
            [*launcher, program],
            folder,
            folder / "kea-dhcp4.json",
            lambda: render_kea_config(DhcpState(), replace(self._host, interfaces=())),
        )
        self._folder6 = home / "kea6"
        self._subnets = subnets_file(home)
        self._host6 = Kea6Host(
            str(socket_path(self._folder6, "control")),
            str(self._folder6 / "leases6.csv"),
            self._server_id(home),
            http_port=http_port,
            dns=dns if isinstance(dns, IPv6Address) else None,
            boot_addresses=_boot_addresses6(boot_addresses),
        )
        self._kea6 = KeaProcess(
            [*launcher, program6, "-p", str(KEA_PORT), "-P", str(RELAY_PORT)],
            self._folder6,
            self._folder6 / "kea-dhcp6.json",
            lambda: render_kea6_config(Dhcp6State(), self._host6),
        )
        self._relay = self._make_relay(home / "dhcp6-relay")
        self._watching: asyncio.Task[None] | None = None

    @staticmethod
    def _server_id(home: Path) -> str:
        """Return what the DHCPv6 server calls itself: of this host and home, so that it stays the same."""
        return "02" + hashlib.sha256(f"{socket.gethostname()} {home}".encode()).hexdigest()[:10]

    def _make_relay(self, folder: Path) -> Daemon:
        ready = folder / "ready.pid"  # removed, as all files of this kind, before the relay is started

        async def is_up() -> bool:
            return await asyncio.to_thread(ready.exists)

        command = [sys.executable, "-m", "rackwright.provision.dhcp6_relay", "--subnets", str(self._subnets)]
        return Daemon(
            [*self._launcher, *command, "--ready", str(ready), *self._interfaces], folder, folder / "relay", is_up
        )

    @property
    def serves(self) -> bool:
        """Whether this host serves DHCP at all."""
        return bool(self._interfaces)

    @property
    def daemons(self) -> tuple[Daemon, ...]:
        """The daemons that have to be told again what to serve after they died."""
        return self._kea4.daemon, self._kea6.daemon

    # --- the interface of boot providers

    async def start(self) -> str:
        """Start the daemons that do not run, and return a description of what runs."""
        if not self.serves:
            return "this server has no interface to serve DHCP on (--dhcp-interface)"
        numbers = await interface_numbers(self._launcher)
        version = await self._kea4.start()
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch_interfaces(numbers), name="watch the interfaces of DHCP")
        families = "DHCPv4"
        if await asyncio.to_thread(read_subnets, self._subnets):
            await self._start6()
            families = "DHCPv4 and DHCPv6"
        return f"Kea {version} on {', '.join(self._interfaces)}: {families}"

    async def _watch_interfaces(self, known: dict[str, int]) -> None:
        """Have Kea listen again on an interface that was made again: its socket stays with the one before, in silence.

        `known`: the numbers that the interfaces had before Kea was started. The DHCPv6 server is on the loopback
        address, and its relay looks by itself.
        """
        in_trouble = False
        while True:
            await asyncio.sleep(LOOK)
            try:
                known = await self._reopen_if_made_again(known)
                in_trouble = False
            except (DaemonFailed, OSError, ValueError) as error:
                if not in_trouble:  # logged once for as long as it lasts
                    log.warning("no DHCP for a while on an interface that was made again: %s", error)
                in_trouble = True

    async def _reopen_if_made_again(self, known: dict[str, int]) -> dict[str, int]:
        """Return the numbers of the interfaces for which Kea has its sockets now."""
        numbers = await interface_numbers(self._launcher)
        same = all(numbers.get(name) == known.get(name) for name in self._interfaces)
        # A configuration with an interface that is not there would be refused.
        if same or not self._kea4.daemon.running or not numbers.keys() >= {*self._interfaces}:
            return known
        await self._kea4.reopen_sockets()
        return numbers

    async def _start6(self) -> None:
        await self._kea6.start()
        await self._relay.ensure_ready()

    async def publish(self, state: DhcpStates) -> None:
        """Serve exactly `state` from now on."""
        self._published = state
        if not self.serves:
            return
        await self.start()
        served = [address for name, address in await own_addresses(self._launcher) if name in self._interfaces]
        v4 = tuple(address for address in served if isinstance(address, IPv4Address))
        v6 = tuple(address for address in served if isinstance(address, IPv6Address))
        await self._kea4.configure(render_kea_config(state.v4, replace(self._host, addresses=v4)))
        if state.v6.subnets:
            await self._start6()
        if self._kea6.daemon.running:
            await self._kea6.configure(render_kea6_config(state.v6, replace(self._host6, addresses=v6)))
            await asyncio.to_thread(write_subnets, self._subnets, [subnet.subnet for subnet in state.v6.subnets])

    async def served(self) -> DhcpStates:
        """Return the state that is served now, read from Kea itself."""
        if not self.serves:
            return self._published
        v4 = parse_kea_config(await self._kea4.configuration())
        if not await asyncio.to_thread(read_subnets, self._subnets):
            return DhcpStates(v4)
        return DhcpStates(v4, parse_kea6_config(await self._kea6.configuration()))

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
            self._watching = None
        for daemon in (self._relay, self._kea6.daemon, self._kea4.daemon):
            await daemon.stop()
