"""OpenSSH's signatures: made with a key, and verified against an allowed-signers file, both by `ssh-keygen`.

Every error carries what `ssh-keygen` said; the sentence around it is the caller's, who knows what was signed and what
to do about it. It is here, and not with the mesh, because the state engine travels to nodes without the rest.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import List

KEYGEN_TIMEOUT_SECONDS = 60
"""After so many seconds `ssh-keygen` is given up: an agent may wait for somebody to touch a key."""


class SignatureProblem(Exception):
    """A signature could not be made or is not good; the text is what ssh-keygen said."""


class KeygenMissing(SignatureProblem):
    """There is no ssh-keygen on this machine"""


class CannotSign(SignatureProblem):
    """The key made no signature"""


class UnknownSigner(SignatureProblem):
    """The signature is by none of the allowed signers' keys"""


class WrongSignature(SignatureProblem):
    """An allowed signer signed another text, or signed it for another purpose"""


def make_signature(text: bytes, key: Path, namespace: str) -> str:
    """Sign a text with a private key, or with the public half of one that an SSH agent holds.

    `namespace` says what the signature is for; it counts for nothing else.
    """
    done = _ssh_keygen(["-q", "-Y", "sign", "-n", namespace, "-f", str(key)], text)
    if done.returncode != 0:
        raise CannotSign(_keygen_message(done))
    return done.stdout.decode()


def find_signer(text: bytes, signature: str, signers: Path, namespace: str) -> str:
    """Return who of an allowed-signers file signed this text for this purpose."""
    with tempfile.NamedTemporaryFile(prefix="rackwright-") as file:
        file.write(signature.encode())
        file.flush()
        found = _ssh_keygen(["-Y", "find-principals", "-f", str(signers), "-s", file.name], b"")
        who = found.stdout.decode("utf-8", "replace").partition("\n")[0].strip()
        if found.returncode != 0 or not who:
            raise UnknownSigner(_keygen_message(found))
        done = _ssh_keygen(["-Y", "verify", "-f", str(signers), "-I", who, "-n", namespace, "-s", file.name], text)
    if done.returncode != 0:
        raise WrongSignature(_keygen_message(done))
    return who


def _ssh_keygen(arguments: List[str], given: bytes) -> "subprocess.CompletedProcess[bytes]":
    # Without a terminal and without an asker, a key with a passphrase fails at once instead of waiting for one.
    environment = {**os.environ, "SSH_ASKPASS_REQUIRE": "never", "LC_ALL": "C"}
    command = ["ssh-keygen", *arguments]
    try:
        return subprocess.run(
            command, input=given, capture_output=True, timeout=KEYGEN_TIMEOUT_SECONDS, check=False, env=environment
        )
    except FileNotFoundError as error:
        raise KeygenMissing("ssh-keygen: not found") from error


def _keygen_message(done: "subprocess.CompletedProcess[bytes]") -> str:
    lines = (done.stderr or done.stdout).decode("utf-8", "replace").splitlines()
    return "; ".join(line.strip() for line in lines if line.strip()) or f"ssh-keygen ended with {done.returncode}"
