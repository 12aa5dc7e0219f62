"""Registrations as machines send them: the whole body signed, with a challenge of the server's."""

import base64
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from rackwright.api.routes.machines.machines import SIGNATURE, registration_message


def public_key(private: Ed25519PrivateKey) -> str:
    """The public half, as machines send it."""
    return base64.b64encode(private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()


def signed(private: Ed25519PrivateKey, body: bytes) -> dict[str, str]:
    """The headers that go with a body."""
    signature = base64.b64encode(private.sign(registration_message(body))).decode()
    return {SIGNATURE: signature, "Content-Type": "application/json"}


def registration(private: Ed25519PrivateKey, challenge: str, macs: list[str], **others: Any) -> bytes:
    """The body of a machine that booted sledgehammer for the first time."""
    said = {"challenge": challenge, "key": public_key(private), "macs": macs, "boot_id": "boot-1"}
    return json.dumps({**said, "bootenv": "sledgehammer", "inventory": {}, **others}).encode()
