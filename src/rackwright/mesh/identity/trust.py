"""The list of trusted operators' keys, signed by the cluster's CA: servers obey only runs and modules signed with them.

The list goes through the datastore but is believed for the CA's signature alone, and only a newer one replaces an
older: an intruder in the datastore cannot add a key. The operators' signatures are `ssh_signatures.py`.
"""

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from rackwright.mesh.errors import BadRecords, BadRequest
from rackwright.mesh.identity.ssh_signatures import BadSignature, sign, verify
from rackwright.private_files import write_private_file

__all__ = ["BadSignature", "Signers", "SignersFile", "sign", "sign_signers", "verify", "verify_signers"]

CONTEXT = b"rackwright signers 1\n"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
KEY = re.compile(r"(ssh-ed25519|sk-ssh-ed25519@openssh\.com|ecdsa-sha2-nistp256|ssh-rsa) [A-Za-z0-9+/=]{40,2000}")


@dataclass(frozen=True)
class Signers:
    """The list, with its version."""

    version: int = 0
    keys: dict[str, str] = field(default_factory=dict)
    """operator -> public key, as OpenSSH writes it"""

    def payload(self) -> bytes:
        return json.dumps({"version": self.version, "keys": self.keys}, sort_keys=True).encode()

    def with_key(self, name: str, key: str) -> "Signers":
        """Return the next version of the list, with the key of an operator; BadRequest if it is none."""
        words = " ".join(key.split()[:2])
        if not NAME.fullmatch(name) or not KEY.fullmatch(words):
            raise BadRequest(f"{name!r} needs an OpenSSH public key, such as the content of id_ed25519.pub")
        return Signers(self.version + 1, {**self.keys, name: words})

    def without(self, name: str) -> "Signers":
        """Return the next version of the list, without the key of an operator."""
        if name not in self.keys:
            raise BadRequest(f"no key of {name!r} is trusted; see: rackwright mesh trust list")
        return Signers(self.version + 1, {other: key for other, key in self.keys.items() if other != name})

    def allowed_signers(self) -> str:
        """Return the list in the format of OpenSSH's allowed signers."""
        return "".join(f"{name} {key}\n" for name, key in sorted(self.keys.items()))


class SignersFile:
    """The file with the newest list that this server has seen, and the OpenSSH file made of it."""

    def __init__(self, folder: Path, ca: x509.Certificate) -> None:
        self.path, self.allowed, self.ca = folder / "signers.signed", folder / "signers", ca
        self.signed = self.path.read_bytes() if self.path.exists() else b""
        self.current = verify_signers(self.signed, ca) if self.signed else Signers()

    def take(self, signed: bytes) -> bool:
        """Keep a list that the CA signed if it is newer than ours; return whether it was."""
        newer = verify_signers(signed, self.ca)
        if newer.version <= self.current.version:
            return False
        write_private_file(self.allowed, newer.allowed_signers().encode())
        write_private_file(self.path, signed)
        self.signed, self.current = signed, newer
        return True


def sign_signers(signers: Signers, key: Ed25519PrivateKey) -> bytes:
    """Return the list with the signature of the CA's key."""
    payload = signers.payload()
    return b64encode(key.sign(CONTEXT + payload)) + b"\n" + payload


def verify_signers(signed: bytes, ca: x509.Certificate) -> Signers:
    """Return the list if the cluster's CA signed it, else raise BadRecords."""
    signature, _, payload = signed.partition(b"\n")
    key = ca.public_key()
    try:
        if not isinstance(key, Ed25519PublicKey):
            raise BadRecords("the cluster's CA has no ed25519 key")
        key.verify(b64decode(signature, validate=True), CONTEXT + payload)
        content = json.loads(payload)
        return Signers(int(content["version"]), dict(content["keys"]))
    except (InvalidSignature, Base64Error, ValueError, KeyError) as problem:
        raise BadRecords("a list of trusted keys without the CA's signature was refused") from problem
