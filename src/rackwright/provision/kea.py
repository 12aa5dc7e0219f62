"""ISC Kea as this host's DHCP server: run as a child process, configured over its control socket, and read back.

Its configuration is always replaced whole. Without an interface to serve on, no Kea is run, and the published state is
only remembered: so a host in a network with another DHCP server never answers by accident.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from rackwright.domain.networks.dhcp import DhcpState, KeaHost, check_interface, parse_kea_config, render_kea_config
from rackwright.private_files import make_private_folder, write_private_file
from rackwright.provision.daemon import Daemon, DaemonFailed, socket_path
from rackwright.provision.host_addresses import own_addresses

PROGRAM = "kea-dhcp4"
ANSWER_TIME = 60.0


class Kea:
    """The DHCP server of this host, by Kea; a boot provider."""

    def __init__(
        self,
        home: Path,
        interfaces: Sequence[str] = (),
        http_port: int = 80,
        dns: IPv4Address | None = None,
        *,
        program: str = PROGRAM,
        launcher: Sequence[str] = (),
    ) -> None:
        """`launcher`: the command that runs the program, such as `ip netns exec NAME`, to serve in another
        namespace."""
        self.folder = home / "kea"
        self._interfaces = tuple(check_interface(name) for name in interfaces)
        self._launcher = tuple(launcher)
        self._socket = socket_path(self.folder, "control")
        self._config = self.folder / "kea-dhcp4.json"
        self._place = KeaHost(
            str(self._socket), str(self.folder / "leases4.csv"), self._interfaces, http_port=http_port, dns=dns
        )
        self._published = DhcpState()
        environment = {"KEA_PIDFILE_DIR": str(self.folder), "KEA_LOCKFILE_DIR": str(self.folder)}
        self.daemon = Daemon(
            [*launcher, program, "-c", str(self._config)],
            self.folder,
            self._socket,
            self._is_answering,
            environment=environment,
            on_failed_start=self._write_empty_config,
        )

    @property
    def serves(self) -> bool:
        """Whether this host serves DHCP at all."""
        return bool(self._interfaces)

    # --- the interface of boot providers

    async def start(self) -> str:
        """Start Kea if it does not run, and return a description of what runs."""
        if not self.serves:
            return "this server has no interface to serve DHCP on (--dhcp-interface)"
        if not self.daemon.running:
            self._prepare_files()
        await self.daemon.ensure_ready()
        version = await self._send("version-get")
        return f"Kea {version.get('text')} on {', '.join(self._interfaces)}"

    async def publish(self, state: DhcpState) -> None:
        """Serve exactly `state` from now on."""
        self._published = state
        if not self.serves:
            return
        await self.start()
        host = await own_addresses(self._launcher)
        served = tuple(
            address for name, address in host if name in self._interfaces and isinstance(address, IPv4Address)
        )
        config = render_kea_config(state, replace(self._place, addresses=served))
        await self._send_checked("config-test", config)
        await self._send_checked("config-set", config)
        self._write(config)

    async def served(self) -> DhcpState:
        """Return the state that is served now, read from Kea itself."""
        if not self.serves:
            return self._published
        response = await self._send_checked("config-get")
        return parse_kea_config(response["arguments"])

    async def stop(self) -> None:
        await self.daemon.stop()

    # --- files

    def _prepare_files(self) -> None:
        """Make sure that there is a configuration to start with.

        Kea starts with the last one, so that after a crash it serves at once.
        """
        make_private_folder(self.folder)
        if not self._config.exists():
            self._write_empty_config()

    def _write_empty_config(self) -> None:
        """Let Kea start without anything to serve: its last configuration may no longer fit this host."""
        self._write(render_kea_config(DhcpState(), replace(self._place, interfaces=())))

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
