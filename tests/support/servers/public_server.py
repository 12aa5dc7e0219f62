"""A server as strangers meet it: its own process, with the listener for people and the one for machines."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from tests.support.servers.server_processes import ServerProcess, free_port
from tests.support.waiting import PATIENCE

from rackwright.client.access import Access
from rackwright.client.transport import open_http
from rackwright.server.first_admin import TOKEN_FILE


@dataclass(frozen=True)
class Front:
    """Where a server can be met."""

    server: ServerProcess
    people: str
    machines: str

    @property
    def listeners(self) -> tuple[str, str]:
        return self.people, self.machines

    @property
    def token(self) -> str:
        """The administrator's."""
        return (self.server.home / TOKEN_FILE).read_text().strip()

    def client(self, listener: str | None = None, *, token: bool = False) -> httpx.Client:
        return open_http(Access(listener or self.people, self.token if token else ""), PATIENCE, base="")


@contextmanager
def front(
    home: Path, database_url: str, *, descriptors: int | None = None, more: Sequence[str] = (), **settings: str
) -> Iterator[Front]:
    """A server without annealer, both listeners on loopback. `descriptors`: how many files it may have open."""
    machines = free_port()
    place = ["--provision-address", "127.0.0.1", "--provision-port", str(machines)]
    server = ServerProcess(home, database_url, lease=60, heartbeat=60, more=["--manual", *place, *more])
    server.settings = {"tftp_port": "0", **settings}
    server.launcher = () if descriptors is None else ["prlimit", f"--nofile={descriptors}"]
    server.start()
    try:
        server.wait_ready()
        yield Front(server, server.address, f"http://127.0.0.1:{machines}")
    finally:
        if server.running:
            server.kill()
