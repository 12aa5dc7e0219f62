"""Operators' signatures of runs: made with an operator's key, and verified against the list of trusted keys.

Which keys are trusted is `trust.py`; how OpenSSH signs is `rackwright.states.ssh_signatures`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rackwright.mesh.errors import BadRequest, MeshError
from rackwright.states.ssh_signatures import (
    CannotSign,
    KeygenMissing,
    UnknownSigner,
    WrongSignature,
    find_signer,
    make_signature,
)

RUNS = "rackwright-run"


class BadSignature(MeshError):
    """The signature is not one that is trusted here"""

    code = "bad_signature"


def sign(text: bytes, key: Path, namespace: str = RUNS) -> str:
    """Sign a text with a private key, or with the public half of one that an SSH agent holds."""
    with _reporting_missing_keygen():
        try:
            return make_signature(text, key, namespace)
        except CannotSign as problem:
            raise BadRequest(f"{key} cannot sign: {problem}") from problem


def verify(text: bytes, signature: str, signers: Path, namespace: str = RUNS) -> str:
    """Return the trusted operator that signed a text, or raise BadSignature."""
    if not signers.is_file():
        raise BadSignature("no operator's key is trusted here; add one where the CA is: rackwright mesh trust add")
    with _reporting_missing_keygen():
        try:
            return find_signer(text, signature, signers, namespace)
        except UnknownSigner as problem:
            raise BadSignature(f"it is signed by a key that is not trusted here: {problem}") from problem
        except WrongSignature as problem:
            raise BadSignature(f"the signature does not fit what it is said to sign: {problem}") from problem


@contextmanager
def _reporting_missing_keygen() -> Iterator[None]:
    """Within the context, a missing ssh-keygen is a BadRequest."""
    try:
        yield
    except KeygenMissing as problem:
        raise BadRequest("ssh-keygen is not installed; signatures need OpenSSH 8.2 or newer") from problem
