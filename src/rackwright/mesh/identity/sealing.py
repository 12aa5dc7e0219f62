"""Sealing of secrets that go through the datastore: only the servers that a run is for can read them.

Every server has an X25519 key for this, kept in its folder, and publishes the public half with its certificate and a
signature of its identity: the sender believes the cluster's CA, not the datastore. A sealed value is bound to the whole
request it is part of; in any other it does not open.
"""

import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from rackwright.mesh.errors import BadIdentity, MeshError
from rackwright.mesh.identity.server_identity import Identity, certificate_pem, name_of, number_of, read_certificate
from rackwright.private_files import write_private_file

FILE = "seal.key"
SEALS = "/rackwright/seals/"
_RECORD = b"rackwright seal key 1\n"
_VALUE = b"rackwright sealed value 1\n"
_NONCE = bytes(12)
"""Each key seals one value only: it comes from a key pair that is made anew for every run."""


class BadSeal(MeshError):
    """A sealed value could not be opened"""

    code = "bad_seal"


def load_seal_key(folder: Path) -> X25519PrivateKey:
    """Return this server's key, which is made at the first call."""
    path = folder / FILE
    if not path.exists():
        write_private_file(path, X25519PrivateKey.generate().private_bytes_raw())
    try:
        return X25519PrivateKey.from_private_bytes(path.read_bytes())
    except ValueError as problem:
        raise BadIdentity(f"{path} holds no key; delete it, and a new one is made") from problem


# The record that a server publishes


def make_seal_record(identity: Identity, key: X25519PublicKey) -> bytes:
    """Return the record that publishes a server's key, with its certificate and signature."""
    public = b64encode(key.public_bytes_raw()).decode()
    signature = identity.key.sign(_RECORD + f"{identity.name}\n{public}".encode())
    certificate = certificate_pem(identity.certificate).decode()
    return json.dumps({"key": public, "certificate": certificate, "signature": b64encode(signature).decode()}).encode()


def verify_seal_record(
    name: str, published: bytes, ca: x509.Certificate, now: datetime | None = None
) -> X25519PublicKey:
    """Return the key in a server's record, if a certificate of this CA that is valid now proves it; else raise
    BadSeal."""
    try:
        content = json.loads(published)
        certificate = read_certificate(str(content["certificate"]).encode())
        certificate.verify_directly_issued_by(ca)
        signer = certificate.public_key()
        if name_of(certificate) != name or not isinstance(signer, Ed25519PublicKey):
            raise BadSeal(f"the key that {name} is said to have is another server's")
        if not certificate.not_valid_before_utc <= (now or datetime.now(UTC)) < certificate.not_valid_after_utc:
            raise BadSeal(f"the key of {name} came with a certificate that is not valid now; restart its agent")
        text = str(content["key"])
        signer.verify(b64decode(content["signature"], validate=True), _RECORD + f"{name}\n{text}".encode())
        return X25519PublicKey.from_public_bytes(b64decode(text, validate=True))
    except (ValueError, KeyError, TypeError, RecursionError, InvalidSignature, Base64Error, BadIdentity) as problem:
        raise BadSeal(f"the key that {name} is said to have is not signed by it: nothing is sealed to it") from problem


def certificate_number(published: str) -> int:
    """Return the issue number of the certificate in a record, by which it may have been revoked; 0 if there is none."""
    try:
        return number_of(read_certificate(str(json.loads(published)["certificate"]).encode()).serial_number)
    except (ValueError, KeyError, TypeError, RecursionError, BadIdentity):
        return 0


# Sealing and opening


def seal(values: Mapping[str, Any], servers: Mapping[str, X25519PublicKey], bound_to: bytes) -> dict[str, Any]:
    """Return the values sealed: only these servers can read them, and only together with `bound_to`."""
    ephemeral = X25519PrivateKey.generate()
    public = ephemeral.public_key().public_bytes_raw()
    text = json.dumps(dict(values), sort_keys=True).encode()
    boxes = {}
    for name, key in sorted(servers.items()):
        box = _cipher(ephemeral.exchange(key), public, key, name).encrypt(_NONCE, text, bound_to)
        boxes[name] = b64encode(box).decode()
    return {"key": b64encode(public).decode(), "boxes": boxes}


def unseal(sealed: Mapping[str, Any], name: str, key: X25519PrivateKey, bound_to: bytes) -> dict[str, Any]:
    """Return the values that were sealed to this server, or raise BadSeal."""
    if name not in sealed.get("boxes", {}):
        raise BadSeal(f"the secrets of this run were not sealed for {name}: it was not there when the run was signed")
    try:
        public = b64decode(sealed["key"], validate=True)
        shared = key.exchange(X25519PublicKey.from_public_bytes(public))
        cipher = _cipher(shared, public, key.public_key(), name)
        text = cipher.decrypt(_NONCE, b64decode(sealed["boxes"][name], validate=True), bound_to)
        return dict(json.loads(text))
    except (InvalidTag, ValueError, KeyError, TypeError, Base64Error) as problem:
        raise BadSeal("the secrets of this run do not open: they were altered, or sealed for another run") from problem


def _cipher(shared: bytes, ephemeral: bytes, server: X25519PublicKey, name: str) -> ChaCha20Poly1305:
    salt = ephemeral + server.public_bytes_raw()
    return ChaCha20Poly1305(HKDF(SHA256(), 32, salt, _VALUE + name.encode()).derive(shared))
