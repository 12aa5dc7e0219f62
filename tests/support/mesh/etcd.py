"""One etcd without TLS, for tests of what speaks to it."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.waiting import PATIENCE

from rackwright.mesh.datastore.etcd_client import Etcd


class PatientEtcd(Etcd):
    """The client of the datastore, that gives no call up before a test would: a busy etcd is late, and not away."""

    async def call_counted(self, path: str, body: dict[str, Any], deadline: float) -> tuple[dict[str, Any], int]:
        return await super().call_counted(path, body, max(deadline, PATIENCE))


@contextmanager
def one_etcd(folder: Path) -> Iterator[str]:
    """Its address; it may not answer yet. It dies with whoever started it."""
    client, peer = (f"http://127.0.0.1:{port}" for port in _free_ports(2))
    command = ["setpriv", "--pdeathsig", "KILL", "etcd", "--name=one", f"--data-dir={folder}", "--log-level=error"]
    command += [f"--listen-client-urls={client}", f"--advertise-client-urls={client}", f"--initial-cluster=one={peer}"]
    command += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", "--logger=zap"]
    command += ["--experimental-watch-progress-notify-interval=200ms"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield client
    finally:
        process.kill()
        process.wait()


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(wire.getsockname()[1]) for wire in held]
    for wire in held:
        wire.close()
    return ports
