"""The etcd process of this server: its command line, start and end, its files, and snapshots.

It dies with the agent that started it, so that no datastore runs unwatched. Whether it should run at all, and as what,
is decided in `local_datastore.py`.
"""

import asyncio
import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rackwright.child_process import ChildProcess, last_line
from rackwright.mesh.datastore.datastore_settings import DatastoreConfig
from rackwright.mesh.errors import BadSettings, MeshError
from rackwright.mesh.identity.revocation import Revoked, revocation_list
from rackwright.private_files import make_private_folder, write_private_file

STOP_SECONDS = 5.0
PROGRESS = "2s"
QUOTA_BYTES = 4 * 1024 * 1024 * 1024
KEEP_REVISIONS = "100000"


class SnapshotFailed(MeshError):
    """The snapshot could not be made or used"""

    code = "snapshot_failed"


class EtcdProcess:
    """One etcd process and its files."""

    def __init__(self, name: str, host: str, folder: Path, identity: Path, config: DatastoreConfig) -> None:
        """`folder` is etcd's own; `identity` holds node.pem and ca.pem, which etcd reads anew at every handshake."""
        self.name, self.folder, self.identity, self.config = name, folder, identity, config
        url_host = f"[{host}]" if ":" in host else host
        self.client_url = f"https://{url_host}:{config.client_port}"
        self.peer_url = f"https://{url_host}:{config.peer_port}"
        self.data = folder / "data"
        self.snapshots = folder / "snapshots"
        self.revocation_file = folder / "revoked.crl"
        self.log = folder / "etcd.log"
        self._process: ChildProcess | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self.running else None

    def available(self) -> bool:
        return shutil.which(self.config.etcd) is not None

    async def start(self, cluster: Mapping[str, str], token: str, *, existing: bool) -> None:
        """Start etcd as a member of `cluster` (name -> peer URL). If it has data on disk, that decides instead."""
        make_private_folder(self.folder)
        initial = ",".join(f"{name}={url}" for name, url in cluster.items())
        state = "existing" if existing else "new"
        arguments = [*self._arguments(), f"--initial-cluster={initial}", f"--initial-cluster-state={state}"]
        arguments += [f"--initial-cluster-token={token}"]
        environment = {"PATH": os.environ.get("PATH", ""), "GOMAXPROCS": os.environ.get("GOMAXPROCS", "2")}
        self._process = await ChildProcess.start(arguments, self.log, environment=environment)

    def _arguments(self) -> list[str]:
        config = self.config
        # Key and certificate share a file; etcd takes from it what it needs.
        node, ca = self.identity / "node.pem", self.identity / "ca.pem"
        return [
            config.etcd,
            f"--name={self.name}",
            f"--data-dir={self.data}",
            f"--listen-client-urls={self.client_url}",
            f"--advertise-client-urls={self.client_url}",
            f"--listen-peer-urls={self.peer_url}",
            f"--initial-advertise-peer-urls={self.peer_url}",
            f"--cert-file={node}",
            f"--key-file={node}",
            f"--trusted-ca-file={ca}",
            "--client-cert-auth",
            f"--peer-cert-file={node}",
            f"--peer-key-file={node}",
            f"--peer-trusted-ca-file={ca}",
            "--peer-client-cert-auth",
            # Read at every handshake.
            f"--client-crl-file={self.revocation_file}",
            f"--peer-crl-file={self.revocation_file}",
            "--experimental-peer-skip-client-san-verification",
            f"--experimental-watch-progress-notify-interval={PROGRESS}",
            "--pre-vote",
            "--strict-reconfig-check",
            f"--heartbeat-interval={config.heartbeat_milliseconds}",
            f"--election-timeout={config.election_milliseconds}",
            "--snapshot-count=10000",
            "--auto-compaction-mode=revision",
            f"--auto-compaction-retention={KEEP_REVISIONS}",
            f"--quota-backend-bytes={QUOTA_BYTES}",
            "--logger=zap",
            # One line a request is written at "warn", that the gateway's name for the client is not used.
            "--log-level=error",
        ]

    async def stop(self) -> None:
        if self._process is not None:
            await self._process.end(STOP_SECONDS)

    async def ended(self) -> int | None:
        """Wait until etcd ends; return its exit status."""
        return await self._process.wait() if self._process else None

    def last_log_line(self) -> str:
        """Return the end of etcd's log, for a person."""
        return last_line(self.log)[-300:]

    def write_revocations(self, revoked: Mapping[str, Revoked], key: Ed25519PrivateKey) -> bool:
        """Tell etcd which certificates are revoked; return whether the list changed.

        etcd reads the serials only; the signature that counts was checked when the cluster's own list was taken.
        """
        serials = sorted({serial for entry in revoked.values() for serial in entry.serials})
        written = self.folder / "revoked.json"
        if self.revocation_file.exists() and written.exists() and json.loads(written.read_text()) == serials:
            return False
        write_private_file(self.revocation_file, revocation_list(serials, key))
        write_private_file(written, json.dumps(serials).encode())
        return True

    # Data

    def has_data(self) -> bool:
        return (self.data / "member").is_dir()

    def move_data_aside(self) -> Path | None:
        """Move the data out of the way; return where it is now.

        It may be the last copy there is, so it is not deleted: only an older copy is.
        """
        if not self.data.exists():
            return None
        aside = self.folder / "data.before"
        shutil.rmtree(aside, ignore_errors=True)
        self.data.rename(aside)
        return aside

    async def take_snapshot(self) -> Path:
        """Take a snapshot of this member's data, checked by etcd's own tool, and delete old ones; return its path."""
        make_private_folder(self.snapshots)
        path = self.snapshots / time.strftime("%Y%m%dT%H%M%SZ.db", time.gmtime())
        connection = [f"--cacert={self.identity / 'ca.pem'}", f"--cert={self.identity / 'node.pem'}"]
        connection += [f"--key={self.identity / 'node.pem'}", f"--endpoints={self.client_url}"]
        await self._run_etcdctl(*connection, "snapshot", "save", str(path))
        for old in self.snapshot_files()[: -self.config.snapshots_kept]:
            old.unlink(missing_ok=True)
        return path

    def snapshot_files(self) -> list[Path]:
        return sorted(self.snapshots.glob("*.db")) if self.snapshots.is_dir() else []

    async def restore(self, snapshot: Path, token: str) -> None:
        """Make new data from a snapshot, as a cluster of this server alone."""
        arguments = [f"--name={self.name}", f"--initial-cluster={self.name}={self.peer_url}"]
        arguments += [f"--initial-advertise-peer-urls={self.peer_url}", f"--initial-cluster-token={token}"]
        await self._run_etcdctl("snapshot", "restore", str(snapshot), *arguments, f"--data-dir={self.data}")

    async def _run_etcdctl(self, *arguments: str) -> None:
        tool = shutil.which(self.config.etcdctl)
        if tool is None:
            raise BadSettings(f"{self.config.etcdctl} is not installed; install etcd-client")
        environment = {"PATH": os.environ.get("PATH", ""), "ETCDCTL_API": "3"}
        process = await asyncio.create_subprocess_exec(
            tool, *arguments, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await process.communicate()
        if process.returncode:
            lines = output.decode(errors="replace").strip().splitlines()
            raise SnapshotFailed(f"etcdctl {' '.join(arguments[-3:-1])} failed: {lines[-1] if lines else 'no reason'}")
