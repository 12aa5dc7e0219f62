"""ISC Kea as this host's DHCP server: run as a child, configured whole over its control socket, and read back.

Without an interface to serve on, nothing is run: what would be served is only held. So a host that somebody else's DHCP
serves never answers by accident.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from rackwright.domain.networks.dhcp import DhcpState, KeaPlace, check_interface, parse, render
from rackwright.private_files import make_private_folder, write_private_file
from rackwright.provision.daemon import Daemon, DaemonFailed, socket_path
from rackwright.provision.host_addresses import own_addresses

PROGRAM = "kea-dhcp4"
ANSWER_TIME = 60.0


class Kea:
    """The DHCP server of this host; a boot provider."""

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
        """`launcher`: what the program is run by, such as `ip netns exec NAME`, to serve in another namespace."""
        self.folder = home / "kea"
        self._interfaces = tuple(check_interface(name) for name in interfaces)
        self._launcher = tuple(launcher)
        self._socket = socket_path(self.folder, "control")
        self._config = self.folder / "kea-dhcp4.json"
        self._place = KeaPlace(
            str(self._socket), str(self.folder / "leases4.csv"), self._interfaces, http_port=http_port, dns=dns
        )
        self._held = DhcpState()
        places = {"KEA_PIDFILE_DIR": str(self.folder), "KEA_LOCKFILE_DIR": str(self.folder)}
        self.daemon = Daemon(
            [*launcher, program, "-c", str(self._config)],
            self.folder,
            self._socket,
            self._answers,
            environment=places,
            broken=self._forget,
        )

    @property
    def serves(self) -> bool:
        """Whether this host serves anybody at all."""
        return bool(self._interfaces)

    # --- a boot provider

    async def start(self) -> str:
        """Have it run; what runs."""
        if not self.serves:
            return "this server has no interface to serve DHCP on (--dhcp-interface)"
        if not self.daemon.running:
            self._prepare()
        await self.daemon.ensure()
        answer = await self._ask("version-get")
        return f"Kea {answer.get('text')} on {', '.join(self._interfaces)}"

    async def publish(self, state: DhcpState) -> None:
        """Serve just this from now on."""
        self._held = state
        if not self.serves:
            return
        await self.start()
        own = await own_addresses(self._launcher)
        here = tuple(address for name, address in own if name in self._interfaces and isinstance(address, IPv4Address))
        config = render(state, replace(self._place, addresses=here))
        await self._command("config-test", config)
        await self._command("config-set", config)
        self._write(config)

    async def served(self) -> DhcpState:
        """What is served now, asked of the server itself."""
        if not self.serves:
            return self._held
        answer = await self._command("config-get")
        return parse(answer["arguments"])

    async def stop(self) -> None:
        await self.daemon.stop()

    # --- its files

    def _prepare(self) -> None:
        """It starts with what it was last given, so that after a crash it serves at once."""
        make_private_folder(self.folder)
        if not self._config.exists():
            self._forget()

    def _forget(self) -> None:
        """Start with nothing: what it was last given may no longer fit this host."""
        self._write(render(DhcpState(), replace(self._place, interfaces=())))

    def _write(self, config: dict[str, Any]) -> None:
        write_private_file(self._config, json.dumps(config).encode())

    # --- its control socket

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(2):
                return (await self._ask("status-get")).get("result") == 0
        except (DaemonFailed, TimeoutError):
            return False

    async def _command(self, command: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            async with asyncio.timeout(ANSWER_TIME):
                answer = await self._ask(command, arguments)
        except TimeoutError:
            raise DaemonFailed(f"Kea did not answer {command} within {ANSWER_TIME:g} s.") from None
        if answer.get("result") != 0:
            raise DaemonFailed(f"Kea refused {command}: {str(answer.get('text'))[:1000]}")
        return answer

    async def _ask(self, command: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
        question = {"command": command} if arguments is None else {"command": command, "arguments": arguments}
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._socket), limit=2**30)
            try:
                writer.write(json.dumps(question).encode())
                await writer.drain()
                answer: dict[str, Any] = json.loads(await reader.read())
            finally:
                writer.close()
        except OSError as error:
            raise DaemonFailed(f"Kea does not answer: {error.strerror or error}.") from None
        except ValueError:
            raise DaemonFailed(f"Kea ended in the middle of its answer to {command}.") from None
        return answer
