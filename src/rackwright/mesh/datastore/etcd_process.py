"""One etcd process on this server: its command line, its life, its files, and snapshots of it.

It dies with the agent that started it, so that no datastore runs that nobody watches. Whether it should run at all, and
as what, is `local_datastore.py`.
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
    def __init__(self, name: str, host: str, folder: Path, identity: Path, config: DatastoreConfig) -> None:
        """`folder` is etcd's own; `identity` holds node.pem and ca.pem, which etcd reads anew at every handshake."""
        self.name, self.folder, self.identity, self.config = name, folder, identity, config
        shown = f"[{host}]" if ":" in host else host
        self.client_url = f"https://{shown}:{config.client_port}"
        self.peer_url = f"https://{shown}:{config.peer_port}"
        self.data = folder / "data"
        self.snapshots = folder / "snapshots"
        self.shut_out = folder / "revoked.crl"
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
        """Start it as a member of `cluster` (name -> peer URL). With data on disk, that is what counts."""
        make_private_folder(self.folder)
        initial = ",".join(f"{name}={url}" for name, url in cluster.items())
        state = "existing" if existing else "new"
        arguments = [*self._arguments(), f"--initial-cluster={initial}", f"--initial-cluster-state={state}"]
        arguments += [f"--initial-cluster-token={token}"]
        environment = {"PATH": os.environ.get("PATH", ""), "GOMAXPROCS": os.environ.get("GOMAXPROCS", "2")}
        self._process = await ChildProcess.start(arguments, self.log, environment=environment)

    def _arguments(self) -> list[str]:
        config = self.config
        # Key and certificate share a file; etcd takes from it what it looks for.
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
            f"--client-crl-file={self.shut_out}",
            f"--peer-crl-file={self.shut_out}",
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
        """Wait until it ends; its exit status."""
        return await self._process.wait() if self._process else None

    def last_words(self) -> str:
        """The end of its log, for a person."""
        return last_line(self.log)[-300:]

    def write_shut_out(self, revoked: Mapping[str, Revoked], key: Ed25519PrivateKey) -> bool:
        """Tell etcd which certificates are revoked; True if that was news.

        It looks at the serials only; the signature that counts was checked when the cluster's own list was taken.
        """
        serials = sorted({serial for entry in revoked.values() for serial in entry.serials})
        known = self.folder / "revoked.json"
        if self.shut_out.exists() and known.exists() and json.loads(known.read_text()) == serials:
            return False
        write_private_file(self.shut_out, revocation_list(serials, key))
        write_private_file(known, json.dumps(serials).encode())
        return True

    # Data

    def has_data(self) -> bool:
        return (self.data / "member").is_dir()

    def put_aside(self) -> Path | None:
        """Move the data out of the way. Not deleted: only one older copy is, for it may be the last there is."""
        if not self.data.exists():
            return None
        aside = self.folder / "data.before"
        shutil.rmtree(aside, ignore_errors=True)
        self.data.rename(aside)
        return aside

    async def take_snapshot(self) -> Path:
        """A snapshot of this member's data, checked by etcd's own tool, and older ones forgotten."""
        make_private_folder(self.snapshots)
        path = self.snapshots / time.strftime("%Y%m%dT%H%M%SZ.db", time.gmtime())
        secure = [f"--cacert={self.identity / 'ca.pem'}", f"--cert={self.identity / 'node.pem'}"]
        secure += [f"--key={self.identity / 'node.pem'}", f"--endpoints={self.client_url}"]
        await self._etcdctl(*secure, "snapshot", "save", str(path))
        for old in self.snapshot_files()[: -self.config.snapshots_kept]:
            old.unlink(missing_ok=True)
        return path

    def snapshot_files(self) -> list[Path]:
        return sorted(self.snapshots.glob("*.db")) if self.snapshots.is_dir() else []

    async def restore(self, snapshot: Path, token: str) -> None:
        """Make new data of a snapshot, as a cluster of this server alone."""
        arguments = [f"--name={self.name}", f"--initial-cluster={self.name}={self.peer_url}"]
        arguments += [f"--initial-advertise-peer-urls={self.peer_url}", f"--initial-cluster-token={token}"]
        await self._etcdctl("snapshot", "restore", str(snapshot), *arguments, f"--data-dir={self.data}")

    async def _etcdctl(self, *arguments: str) -> None:
        tool = shutil.which(self.config.etcdctl)
        if tool is None:
            raise BadSettings(f"{self.config.etcdctl} is not installed; install etcd-client")
        environment = {"PATH": os.environ.get("PATH", ""), "ETCDCTL_API": "3"}
        process = await asyncio.create_subprocess_exec(
            tool, *arguments, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await process.communicate()
        if process.returncode:
            told = said.decode(errors="replace").strip().splitlines()
            raise SnapshotFailed(f"etcdctl {' '.join(arguments[-3:-1])} failed: {told[-1] if told else 'no reason'}")
