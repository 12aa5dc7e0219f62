"""The vault: secrets are encrypted before they reach the database, and opened only for the jig that needs them.

Keys lie in one file that only its owner can read, each with a number. A new one seals from now on; `reseal` brings
what older ones sealed under it, and then the older ones can go.
"""

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from rackwright.domain.attributes import MISSING, merge, nest_at_path, read_at_path, without_path
from rackwright.domain.catalogue import Attrib, Json, JsonObject
from rackwright.domain.errors import Invalid, RackwrightError
from rackwright.domain.sealed import FINGERPRINT, SEAL, is_sealed
from rackwright.private_files import create_private_file, write_private_file

KEY_FILE = "secret-keys.json"


class VaultLocked(RackwrightError):
    """A secret cannot be opened: the key it was sealed with is not in the key file. Restore that file from a backup."""

    status = 503
    type = "vault-locked"


@dataclass(frozen=True)
class Vault:
    """Seals and opens values."""

    keys: dict[int, bytes] = field(repr=False)
    fingerprint_key: bytes = field(repr=False)

    @classmethod
    def fresh(cls) -> "Vault":
        return cls({1: AESSIV.generate_key(512)}, secrets.token_bytes(32))

    @property
    def newest(self) -> int:
        return max(self.keys)

    def with_new_key(self) -> "Vault":
        return Vault({**self.keys, self.newest + 1: AESSIV.generate_key(512)}, self.fingerprint_key)

    def with_newest_key_only(self) -> "Vault":
        return Vault({self.newest: self.keys[self.newest]}, self.fingerprint_key)

    def seal(self, value: Json) -> JsonObject:
        plain = json.dumps(value, sort_keys=True).encode()
        # Deterministic (SIV): one secret sealed in two places compares equal, as data that is the same should.
        sealed = base64.b64encode(AESSIV(self.keys[self.newest]).encrypt(plain, None)).decode()
        print_ = hmac.new(self.fingerprint_key, plain, hashlib.sha256).hexdigest()
        return {SEAL: f"{self.newest}:{sealed}", FINGERPRINT: print_}

    def open(self, sealed: Json) -> Json:
        assert isinstance(sealed, dict)
        number, _, text = str(sealed[SEAL]).partition(":")
        key = self.keys.get(int(number)) if number.isdecimal() else None
        try:
            raw = base64.b64decode(text, validate=True)
            if key is None:
                raise VaultLocked
            opened: Json = json.loads(AESSIV(key).decrypt(raw, None))
        except (InvalidTag, ValueError):
            raise VaultLocked from None
        return opened

    def open_secrets(self, attribs: Iterable[Attrib], values: JsonObject) -> JsonObject:
        """The values with what is sealed at a secret attrib's place opened: for a jig, never for a log or an answer.

        A seal anywhere else is nothing that was sealed here, and stays as it is.
        """
        for attrib in attribs:
            value = read_at_path(values, attrib.map) if attrib.secret else MISSING
            if value is not MISSING and is_sealed(value):
                opened = self.open(value)
                values = merge(without_path(values, attrib.map), nest_at_path(attrib.map, opened))
        return values

    def seal_secrets(self, attribs: tuple[Attrib, ...], values: JsonObject) -> JsonObject:
        """The values with what lies at a secret attrib's place sealed."""
        for attrib in attribs:
            found = read_at_path(values, attrib.map) if attrib.secret else MISSING
            if found is not MISSING and not is_sealed(found):
                values = merge(values, nest_at_path(attrib.map, self.seal(found)))
        return values

    def check_sealed(self, value: Json) -> None:
        """A sealed value that somebody hands in must be one of ours."""
        try:
            self.open(value)
        except VaultLocked:
            raise Invalid("A sealed value cannot be made up; give the secret itself, or leave it as it is.") from None


def load_vault(home: Path) -> Vault:
    """The vault of a server; made at its first start."""
    path = home / KEY_FILE
    try:
        kept = json.loads(path.read_text())
    except FileNotFoundError:
        vault = Vault.fresh()
        save_vault(vault, home)
        return load_vault(home)
    decode = base64.b64decode
    return Vault({int(n): decode(key) for n, key in kept["keys"].items()}, decode(kept["fingerprint"]))


def save_vault(vault: Vault, home: Path) -> None:
    """Write the key file whole or not at all. A first start that comes second keeps what the first one made."""
    home.mkdir(parents=True, exist_ok=True)
    path = home / KEY_FILE
    encode = base64.b64encode
    text = json.dumps(
        {
            "keys": {str(number): encode(key).decode() for number, key in vault.keys.items()},
            "fingerprint": encode(vault.fingerprint_key).decode(),
        }
    )
    if path.exists():
        write_private_file(path, text.encode())
    else:
        create_private_file(path, text.encode())
