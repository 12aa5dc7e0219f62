"""Knot as this host's DNS server: run as a child process, configured with its zones, and filled by signed updates.

Without an address to serve on, no Knot is run, and the published state is only remembered.
"""

import asyncio
import base64
import secrets
from collections.abc import Collection, Sequence
from ipaddress import ip_address
from pathlib import Path

from rackwright.domain.names import check_node_name
from rackwright.domain.networks.dns import DnsState
from rackwright.private_files import write_private_file
from rackwright.provision.daemon import Daemon, DaemonFailed, socket_path
from rackwright.provision.dns_update import DnsClient, TsigKey

PROGRAM, CONTROL = "knotd", "knotc"
KEY_NAME = "rackwright"
COMMAND_TIME = 30.0


class Knot:
    """The DNS server of this host, by Knot."""

    def __init__(
        self,
        home: Path,
        address: str | None = None,
        port: int = 53,
        host: str = "localhost.internal",
        *,
        program: str = PROGRAM,
        launcher: Sequence[str] = (),
    ) -> None:
        self.folder = home / "knot"
        self.address = None if address is None else str(ip_address(address))
        self._port = port
        self._host = check_node_name(host)
        self._launcher = list(launcher)
        self._config = self.folder / "knot.conf"
        self._socket = socket_path(self.folder, "knot.sock")
        self._published = DnsState()
        self._zones: frozenset[str] = frozenset()
        self.daemon = Daemon(
            [*launcher, program, "-c", str(self._config), "-s", str(self._socket)],
            self.folder,
            self._socket,
            self._is_answering,
        )

    @property
    def serves(self) -> bool:
        """Whether this host serves DNS at all."""
        return self.address is not None

    async def start(self) -> str:
        """Start Knot if it does not run, and return a description of what runs."""
        if not self.serves:
            return "this server has no address to serve DNS on (--dns-address)"
        if not self._config.exists():
            self._write_config(())
        await self.daemon.ensure_ready()
        return f"Knot on {self.address} port {self._port}"

    async def publish(self, state: DnsState) -> None:
        """Serve exactly `state` from now on, changing only the records that differ, zone by zone."""
        self._published = state
        if not self.serves:
            return
        await self.start()
        await self._set_zones(state.zones)
        client = self._client()
        for zone, records in sorted(state.zones.items()):
            served = await client.read_records(zone)
            await client.update(zone, served - records, records - served)

    async def served(self) -> DnsState:
        """Return the state that is served now, read from Knot itself."""
        if not self.serves:
            return self._published
        client = self._client()
        zones = {zone: await client.read_records(zone) for zone in sorted(self._zones)}
        return DnsState(self._published.generation, zones)

    async def stop(self) -> None:
        await self.daemon.stop()

    # --- configuration

    async def _set_zones(self, zones: Collection[str]) -> None:
        names = frozenset(_check_zone(zone) for zone in zones)
        for zone in names:
            self._write_zone(zone)
        if self._write_config(sorted(names)) or names != self._zones:
            await self._run_control("reload")
        self._zones = names

    def _write_config(self, zones: Sequence[str]) -> bool:
        """Write the configuration; return whether it differs from the one before."""
        secret = base64.b64encode(self._read_key().secret).decode()
        lines = [
            "server:",
            f"    rundir: {_quoted(str(self.folder))}",
            *([f"    listen: {self.address}@{self._port}"] if self.address else []),
            # A name server of a site needs no crowd of threads.
            *("    udp-workers: 1", "    tcp-workers: 1", "    background-workers: 1"),
            *('    identity: ""', '    version: ""'),
            "log:",
            *("  - target: stderr", "    any: warning"),
            "database:",
            *(f"    storage: {_quoted(str(self.folder))}", "    journal-db-max-size: 256M"),
            "key:",
            *(f"  - id: {KEY_NAME}", "    algorithm: hmac-sha256", f"    secret: {secret}"),
            "acl:",
            *(f"  - id: {KEY_NAME}", f"    key: {KEY_NAME}", "    action: [transfer, update]"),
            "template:",
            *("  - id: default", f"    storage: {_quoted(str(self.folder))}", f"    acl: {KEY_NAME}"),
            *(["zone:"] if zones else []),
            *(f"  - domain: {zone}" for zone in zones),
        ]
        return self._write(self._config, "\n".join(lines) + "\n")

    def _write_zone(self, zone: str) -> None:
        """Write a new zone with nothing but its head; one that exists is changed by updates only."""
        file = self.folder / f"{zone}.zone"
        if not file.exists():
            head = f"{zone}. 3600 SOA {self._host}. hostmaster.{zone}. 1 3600 600 604800 60"
            self._write(file, f"{head}\n{zone}. 3600 NS {self._host}.\n")

    def _write(self, file: Path, text: str) -> bool:
        """Write a file unless it has that text already; return whether it was written."""
        if file.exists() and file.read_text() == text:
            return False
        write_private_file(file, text.encode())
        return True

    def _read_key(self) -> TsigKey:
        """Return the key that signs updates, making it at the first start.

        The key is this host's own: only those who may read its home may change its zones.
        """
        path = self.folder / "tsig.key"
        try:
            secret = base64.b64decode(path.read_text())
        except FileNotFoundError:
            secret = secrets.token_bytes(32)
            self._write(path, base64.b64encode(secret).decode() + "\n")
        return TsigKey(KEY_NAME, secret)

    def _client(self) -> DnsClient:
        assert self.address is not None
        return DnsClient(self.address, self._port, self._read_key())

    # --- control program

    async def _is_answering(self) -> bool:
        try:
            await self._run_control("status")
        except DaemonFailed:
            return False
        return True

    async def _run_control(self, *words: str) -> None:
        command = [*self._launcher, CONTROL, "-s", str(self._socket), "-t", str(int(COMMAND_TIME)), *words]
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
            )
        except OSError as error:
            raise DaemonFailed(f"{CONTROL} cannot be run: {error.strerror}. Is the package knot installed?") from None
        output, _ = await process.communicate()
        if process.returncode:
            raise DaemonFailed(f"Knot refused {words[0]}: {output.decode(errors='replace').strip()[:1000]}")


def _check_zone(zone: str) -> str:
    """Return the name of a zone if it is safe in a configuration: letters, digits, '-' and dots.

    A zone has the name of nodes without the first label, or is a reverse zone.
    """
    check_node_name(f"x.{zone}")
    return zone


def _quoted(path: str) -> str:
    if not path.isprintable() or '"' in path or "\\" in path:
        raise DaemonFailed(f"Knot cannot work in {path!r}: choose a home without quotes and backslashes in its name.")
    return f'"{path}"'
