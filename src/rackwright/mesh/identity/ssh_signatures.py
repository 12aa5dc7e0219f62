"""OpenSSH's signatures: made with an operator's key, and verified against a list of trusted ones.

Whose keys are trusted is `trust.py`.
"""

import os
import subprocess
import tempfile
from pathlib import Path

from rackwright.mesh.errors import BadRequest, MeshError

RUNS = "rackwright-run"


class BadSignature(MeshError):
    """The signature is not one that is trusted here"""

    code = "bad_signature"


def sign(text: bytes, key: Path, namespace: str = RUNS) -> str:
    """Signed with a private key, or with the public half of one that an SSH agent holds."""
    done = _ssh_keygen(["ssh-keygen", "-q", "-Y", "sign", "-n", namespace, "-f", str(key)], text)
    if done.returncode:
        raise BadRequest(f"{key} cannot sign: {_said(done)}")
    return done.stdout.decode()


def verify(text: bytes, signature: str, signers: Path, namespace: str = RUNS) -> str:
    """Who of the trusted has signed this text."""
    if not signers.is_file():
        raise BadSignature("no operator's key is trusted here; add one where the CA is: rackwright mesh trust add")
    with tempfile.NamedTemporaryFile(prefix="rackwright-") as file:
        file.write(signature.encode())
        file.flush()
        find = _ssh_keygen(["ssh-keygen", "-Y", "find-principals", "-f", str(signers), "-s", file.name], b"")
        who = find.stdout.decode(errors="replace").partition("\n")[0].strip()
        if find.returncode or not who:
            raise BadSignature(f"it is signed by a key that is not trusted here: {_said(find)}")
        command = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", who, "-n", namespace, "-s", file.name]
        done = _ssh_keygen(command, text)
    if done.returncode:
        raise BadSignature(f"the signature does not fit what it is said to sign: {_said(done)}")
    return who


def _ssh_keygen(command: list[str], given: bytes) -> "subprocess.CompletedProcess[bytes]":
    environment = {**os.environ, "SSH_ASKPASS_REQUIRE": "never", "LC_ALL": "C"}
    try:
        return subprocess.run(command, input=given, capture_output=True, timeout=60, check=False, env=environment)
    except FileNotFoundError as problem:
        raise BadRequest("ssh-keygen is not installed; signatures need OpenSSH 8.2 or newer") from problem


def _said(done: "subprocess.CompletedProcess[bytes]") -> str:
    said = (done.stderr or done.stdout).decode(errors="replace")
    return (
        "; ".join(line.strip() for line in said.splitlines() if line.strip()) or f"ssh-keygen ended: {done.returncode}"
    )
