"""What this server believes about requests for runs: whose keys it trusts, and for which cluster and hour they signed.

Used by a target (`tasks.py`), by the server that begins a run (`run_start.py`) and by the one that watches repositories
(`repositories.py`). What is particular to a target is `tasks.py`.
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
from rackwright.mesh.runs.run_model import CLOCK_SECONDS, Request
from rackwright.mesh.runs.run_store import Signed


class NotForUs(MeshError):
    """The run is not one that this server may run"""

    code = "run_refused"


class RunTrust:
    def __init__(
        self, name: str, folder: Path, identity: OwnIdentity, etcd: Etcd, refusals: Refusals, log: Log
    ) -> None:
        self._name, self._identity, self._etcd, self._refusals, self._log = name, identity, etcd, refusals, log
        self.signers = SignersFile(folder, identity.current.ca)
        self.seal = sealing.load_seal_key(folder)

    @property
    def cluster(self) -> str:
        """The fingerprint of the cluster's CA, by which requests and orders name their cluster."""
        return fingerprint(self._identity.current.ca)

    async def verify(self, signed: Signed) -> str:
        """Return which of the trusted operators has signed this text."""
        return await asyncio.to_thread(self.verify_now, signed)

    def verify_now(self, signed: Signed) -> str:
        """Do the same in this thread, which waits for `ssh-keygen`."""
        return trust.verify(signed.text.encode(), signed.signature, self.signers.allowed)

    def check_time_and_place(self, request: Request) -> None:
        now = time.time()
        if request.cluster != self.cluster:
            raise NotForUs("it was signed for another cluster")
        if not request.created - CLOCK_SECONDS <= now < request.expires:
            raise NotForUs("it was signed for another time; sign it anew, and see that the clocks agree")

    def opened(self, request: Request) -> Request:
        """The request with the secrets in it that were sealed to this server."""
        if not request.sealed:
            return request
        values = sealing.unseal(request.sealed, self._name, self.seal, request.all_but_sealed())
        return replace(request, variables={**request.variables, **values}, sealed={})

    async def refresh_signers(self) -> None:
        """Take a newer list of trusted keys, if the CA has signed it."""
        item = await self._etcd.get(f"{run_model.TRUST}/signers")
        self.take_signers(item.value if item else b"")

    def take_signers(self, signed: bytes) -> None:
        if not signed or signed == self.signers.signed:
            return
        try:
            fresh = self.signers.take(signed)
        except BadRecords as problem:
            self._refusals.refuse_record(problem)
            return
        if fresh:
            self._log.warning("signers_changed", version=self.signers.current.version)
