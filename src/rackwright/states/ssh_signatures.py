"""OpenSSH signatures: made with a key, and verified against an allowed-signers file, both by `ssh-keygen`.

Every error carries the output of `ssh-keygen`; the caller, which knows what was signed and what to do about it, writes
the sentence around it. The module is here, and not in the mesh, because the state engine travels to nodes alone.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import List

KEYGEN_TIMEOUT_SECONDS = 60
"""How long `ssh-keygen` may take before it is killed: an SSH agent may wait for a person to touch a key."""


class SignatureProblem(Exception):
    """A signature could not be made or is not good; the text is the output of ssh-keygen."""


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

    `namespace` says what the signature is for; it is not valid for anything else.
    """
    process = _ssh_keygen(["-q", "-Y", "sign", "-n", namespace, "-f", str(key)], text)
    if process.returncode != 0:
        raise CannotSign(_keygen_message(process))
    return process.stdout.decode()


def find_signer(text: bytes, signature: str, signers: Path, namespace: str) -> str:
    """Return the name in an allowed-signers file whose key signed this text for this purpose."""
    with tempfile.NamedTemporaryFile(prefix="rackwright-") as file:
        file.write(signature.encode())
        file.flush()
        search = _ssh_keygen(["-Y", "find-principals", "-f", str(signers), "-s", file.name], b"")
        signer = search.stdout.decode("utf-8", "replace").partition("\n")[0].strip()
        if search.returncode != 0 or not signer:
            raise UnknownSigner(_keygen_message(search))
        verification = _ssh_keygen(
            ["-Y", "verify", "-f", str(signers), "-I", signer, "-n", namespace, "-s", file.name], text
        )
    if verification.returncode != 0:
        raise WrongSignature(_keygen_message(verification))
    return signer


def _ssh_keygen(arguments: List[str], stdin: bytes) -> "subprocess.CompletedProcess[bytes]":
    # Without a terminal and without an askpass program, a key with a passphrase fails at once instead of waiting.
    environment = {**os.environ, "SSH_ASKPASS_REQUIRE": "never", "LC_ALL": "C"}
    command = ["ssh-keygen", *arguments]
    try:
        return subprocess.run(
            command, input=stdin, capture_output=True, timeout=KEYGEN_TIMEOUT_SECONDS, check=False, env=environment
        )
    except FileNotFoundError as error:
        raise KeygenMissing("ssh-keygen: not found") from error


def _keygen_message(process: "subprocess.CompletedProcess[bytes]") -> str:
    lines = (process.stderr or process.stdout).decode("utf-8", "replace").splitlines()
    return "; ".join(line.strip() for line in lines if line.strip()) or f"ssh-keygen ended with {process.returncode}"
