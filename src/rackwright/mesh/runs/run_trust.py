"""Verifies requests for runs: signed by a trusted operator, for this cluster and the present time; unseals secrets.

Used by a target (`tasks.py`), by the server that begins a run (`run_start.py`) and by the server that watches
repositories (`repositories.py`). What only a target verifies is in `tasks.py`.
"""

import asyncio
import time
from dataclasses import replace
from pathlib import Path

from rackwright.mesh.datastore.etcd_client import Etcd
from rackwright.mesh.errors import BadRecords, MeshError
from rackwright.mesh.identity import sealing, trust
from rackwright.mesh.identity.server_identity import OwnIdentity, fingerprint
from rackwright.mesh.identity.trust import SignersFile
from rackwright.mesh.log import Log
from rackwright.mesh.refusals import Refusals
from rackwright.mesh.runs import run_model
from rackwright.mesh.runs.run_model import CLOCK_SECONDS, RunRequest
from rackwright.mesh.runs.run_store import SignedText


class RunNotPermitted(MeshError):
    """The run is not one that this server may run"""

    code = "run_refused"


class RunTrust:
    """The keys of operators that this server trusts, and its own key to unseal secrets with."""

    def __init__(
        self, name: str, folder: Path, identity: OwnIdentity, etcd: Etcd, refusals: Refusals, log: Log
    ) -> None:
        self._name, self._identity, self._etcd, self._refusals, self._log = name, identity, etcd, refusals, log
        self.signers = SignersFile(folder, identity.current.ca)
        self.seal_key = sealing.load_seal_key(folder)

    @property
    def cluster(self) -> str:
        """The fingerprint of the cluster's CA, by which requests and orders name their cluster."""
        return fingerprint(self._identity.current.ca)

    async def verify(self, signed: SignedText) -> str:
        """Return the name of the trusted operator who has signed this text."""
        return await asyncio.to_thread(self.verify_blocking, signed)

    def verify_blocking(self, signed: SignedText) -> str:
        """Do the same as `verify` in this thread, which waits for `ssh-keygen`."""
        return trust.verify(signed.text.encode(), signed.signature, self.signers.allowed)

    def check_cluster_and_time(self, request: RunRequest) -> None:
        now = time.time()
        if request.cluster != self.cluster:
            raise RunNotPermitted("it was signed for another cluster")
        if not request.created - CLOCK_SECONDS <= now < request.expires:
            raise RunNotPermitted("it was signed for another time; sign it anew, and see that the clocks agree")

    def unseal_secrets(self, request: RunRequest) -> RunRequest:
        """Return the request with the secrets that were sealed to this server among its variables."""
        if not request.sealed:
            return request
        values = sealing.unseal(request.sealed, self._name, self.seal_key, request.dump_without_sealed())
        return replace(request, variables={**request.variables, **values}, sealed={})

    async def refresh_signers(self) -> None:
        """Take a newer list of trusted keys, if the CA has signed it."""
        item = await self._etcd.get(f"{run_model.TRUST}/signers")
        self.take_signers(item.value if item else b"")

    def take_signers(self, signed: bytes) -> None:
        if not signed or signed == self.signers.signed:
            return
        try:
            is_newer = self.signers.take(signed)
        except BadRecords as problem:
            self._refusals.refuse_record(problem)
            return
        if is_newer:
            self._log.warning("signers_changed", version=self.signers.current.version)
