"""A member that misuses its access to the datastore, to be run on a server of a fleet: puts there what nobody signed.

`python -m tests.support.mesh.rogue_member FOLDER ENDPOINT` reads one JSON object from standard input: a `run` (request,
signature, tree in base64, targets), `keys` to be written as they are, `sign`, keys to be written with its own
signature, `copy`, keys whose values are to be written at others, and `delete`, keys to be taken away first.
"""

import asyncio
import json
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

from rackwright.mesh.datastore.etcd_client import Etcd
from rackwright.mesh.identity.server_identity import IdentityFiles
from rackwright.mesh.identity.signed_statements import Statements
from rackwright.mesh.runs.record_verifier import RecordVerifier
from rackwright.mesh.runs.run_model import read_request
from rackwright.mesh.runs.run_store import RunStore, SignedText
from rackwright.mesh.transport.tls import Contexts


async def main(folder: Path, endpoints: list[str], wish: dict[str, Any]) -> None:
    etcd = Etcd(lambda: endpoints, Contexts(IdentityFiles(folder)).client)
    for key in wish.get("delete", ()):
        await etcd.delete(key)
    for key, value in wish.get("keys", {}).items():
        await etcd.put(key, b64decode(value))
    statements = Statements(IdentityFiles(folder).load)
    for key, value in wish.get("sign", {}).items():
        await etcd.put(key, statements.sign(key, b64decode(value)))
    for source, key in wish.get("copy", {}).items():
        held = await etcd.get(source)
        assert held is not None, f"there is no {source}"
        await etcd.put(key, held.value)
    if run := wish.get("run"):
        signed = SignedText(run["request"], run["signature"])
        request = read_request(run["request"])
        states = dict.fromkeys(run["targets"], 1)
        await RunStore(etcd, RecordVerifier(statements)).begin(signed, request, b64decode(run["tree"]), states, "rogue")
    await etcd.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2:], json.load(sys.stdin)))
