"""Builds, seals and signs the request for a run, on the computer that has the key to sign it with."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rackwright.mesh.identity import ssh_signatures
from rackwright.mesh.runs import run_model
from rackwright.mesh.runs.run_model import EXPIRES_SECONDS, RunRequest, Targets

if TYPE_CHECKING:
    from pathlib import Path


def new_request(cluster: str, packed: bytes, targets: Targets, *, part: str = "", **more: Any) -> RunRequest:
    """Return a new request. `part`: a word in its id, for people; `more`: the other fields of the request."""
    now = int(time.time())
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    return RunRequest(
        id="-".join(filter(None, (stamp, part, secrets.token_hex(4)))),
        cluster=cluster,
        created=now,
        expires=now + EXPIRES_SECONDS,
        tree=run_model.tree_digest(packed),
        targets=targets,
        **more,
    )


def seal_request(request: RunRequest, hidden: dict[str, Any], published: dict[str, str], ca_pem: bytes) -> RunRequest:
    """Return the request with its secrets (`hidden`), readable only by the servers that `published` their seal keys."""
    from rackwright.mesh.identity import sealing
    from rackwright.mesh.identity.server_identity import read_certificate

    ca = read_certificate(ca_pem, "cluster's CA")
    keys = {name: sealing.verify_seal_record(name, record.encode(), ca) for name, record in published.items()}
    return replace(request, sealed=sealing.seal(hidden, keys, request.dump_without_sealed()))


def write_package(folder: Path, request: RunRequest, packed: bytes, key: Path) -> Path:
    """Sign a request and write it for the agent, with the packed tree beside it; return the package's path."""
    (folder / "tree").write_bytes(packed)
    text = request.dump()
    content = {"request": text, "signature": ssh_signatures.sign(text.encode(), key), "tree": str(folder / "tree")}
    package = folder / "package.json"
    package.write_text(json.dumps(content))
    return package
