"""A run as it is asked for: made, sealed and signed where the key of whoever asks is."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rackwright.mesh.identity import ssh_signatures
from rackwright.mesh.runs import run_model
from rackwright.mesh.runs.run_model import EXPIRES_SECONDS, Request, Targets

if TYPE_CHECKING:
    from pathlib import Path


def new_request(cluster: str, packed: bytes, targets: Targets, *, part: str = "", **more: Any) -> Request:
    """`part` of its id, for people; `more`: what else a request says."""
    now = int(time.time())
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    return Request(
        id="-".join(filter(None, (stamp, part, secrets.token_hex(4)))),
        cluster=cluster,
        created=now,
        expires=now + EXPIRES_SECONDS,
        tree=run_model.digest_of(packed),
        targets=targets,
        **more,
    )


def sealed(request: Request, hidden: dict[str, Any], published: dict[str, str], ca_pem: bytes) -> Request:
    """The request with its secrets, which nobody but the servers that `published` these seals can read."""
    from rackwright.mesh.identity import sealing
    from rackwright.mesh.identity.server_identity import read_certificate

    ca = read_certificate(ca_pem, "cluster's CA")
    keys = {name: sealing.verify_seal_record(name, record.encode(), ca) for name, record in published.items()}
    return replace(request, sealed=sealing.seal(hidden, keys, request.all_but_sealed()))


def write_package(folder: Path, request: Request, packed: bytes, key: Path) -> Path:
    """What is handed to the agent: the signed request, and where the packed tree lies."""
    (folder / "tree").write_bytes(packed)
    text = request.dump()
    content = {"request": text, "signature": ssh_signatures.sign(text.encode(), key), "tree": str(folder / "tree")}
    package = folder / "package.json"
    package.write_text(json.dumps(content))
    return package
