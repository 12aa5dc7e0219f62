"""Signatures in the format of minisign: checked here, made by the program `minisign` with a key that a person has.

A public key is one line of base64: the letters "Ed", a number of the key, and an Ed25519 key. A signature is four
lines: a comment, the signature of the BLAKE2b digest of the content, a trusted comment, and a signature of both.
"""

import base64
import hashlib
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from rackwright.provision.images.packages import BuildFailed, require_programs

ALGORITHM = b"Ed"
PREHASHED = b"ED"
"""The algorithm of a signature of the digest. Signatures of the content itself ("Ed") are minisign's old ones."""
MOST_CHARACTERS = 4096
TRUSTED_COMMENT = "trusted comment: "


class BadSignature(Exception):
    """A signature does not hold, or is none; the text says why."""


class BadPublicKey(Exception):
    """A text is no public key of minisign; the text says what is wrong."""


def read_public_key(text: str) -> tuple[bytes, Ed25519PublicKey]:
    """Return the number and the key of a public key; BadPublicKey if it is none."""
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except ValueError:  # of what is no ASCII, too
        key = b""
    if len(key) != 42 or key[:2] != ALGORITHM:
        raise BadPublicKey(
            f"{text[:80]!r} is no public key of minisign. It is the second line of its file, and begins with RW"
        )
    return key[2:10], Ed25519PublicKey.from_public_bytes(key[10:])


def check_signature(content: bytes, signature: str, public_keys: Sequence[str]) -> None:
    """Raise BadSignature unless one of the keys signed the content."""
    number, signed, comment, whole = _read_signature(signature)
    keys = dict(read_public_key(text) for text in public_keys)
    key = keys.get(number)
    if key is None:
        known = ", ".join(_key_name(known) for known in keys) or "none"
        raise BadSignature(f"it is by the key {_key_name(number)}, and the keys in image_signing_keys are: {known}")
    try:
        key.verify(signed, hashlib.blake2b(content).digest())
    except InvalidSignature:
        raise BadSignature("it is the signature of something else") from None
    try:
        key.verify(whole, signed + comment.encode(errors="replace"))
    except InvalidSignature:
        raise BadSignature("its trusted comment was changed") from None


def make_signature(content: bytes, secret_key: Path, name: str) -> str:
    """Sign content with the program `minisign`, which asks for the key's password; BuildFailed if it does not."""
    require_programs("minisign")
    _check_readable(secret_key)
    with tempfile.TemporaryDirectory(prefix="rackwright-sign-") as folder:
        statement = Path(folder) / "statement"
        statement.write_bytes(content)
        command = ["minisign", "-S", "-s", str(secret_key), "-m", str(statement), "-t", f"image {name}"]
        # The password is asked for on this terminal; minisign's own words are shown there too.
        if subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode != 0:
            raise BuildFailed(f"minisign did not sign image {name} with {secret_key}; what it said is above.")
        return read_signature_file(Path(folder) / "statement.minisig")


def read_signature_file(path: Path) -> str:
    """Return the signature in a file; BuildFailed if it cannot be read, or is no text."""
    try:
        with path.open("rb") as file:
            return file.read(MOST_CHARACTERS + 1).decode()
    except (OSError, ValueError) as error:
        raise BuildFailed(f"The signature {path} cannot be read: {error}") from None


def _check_readable(secret_key: Path) -> None:
    """Raise BuildFailed if a secret key cannot be read: minisign says of everything that there is no such file."""
    try:
        if secret_key.is_file():
            secret_key.open("rb").close()
            return
    except (OSError, ValueError) as error:
        raise BuildFailed(f"The secret key {secret_key} cannot be read: {error}") from None
    raise BuildFailed(f"There is no secret key {secret_key}. Make one: minisign -G -s {secret_key}")


def _read_signature(text: str) -> tuple[bytes, bytes, str, bytes]:
    """Return the number of the key, the signature, the trusted comment, and the signature of both."""
    lines = text[: MOST_CHARACTERS + 1].splitlines()
    try:
        if len(text) > MOST_CHARACTERS or not lines[2].startswith(TRUSTED_COMMENT):
            raise BadSignature("it is no signature of minisign")
        signature, whole = (base64.b64decode(line, validate=True) for line in (lines[1], lines[3]))
    except (IndexError, ValueError):  # of what is no ASCII, too
        raise BadSignature("it is no signature of minisign") from None
    if signature[:2] == ALGORITHM:
        raise BadSignature("it is in minisign's old format: sign again with minisign 0.10 or later")
    if signature[:2] != PREHASHED or len(signature) != 74 or len(whole) != 64:
        raise BadSignature("it is no signature of minisign")
    return signature[2:10], signature[10:], lines[2].removeprefix(TRUSTED_COMMENT), whole


def _key_name(number: bytes) -> str:
    """Return the number of a key as minisign writes it."""
    return number[::-1].hex().upper()
