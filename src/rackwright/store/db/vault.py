"""The vault encrypts (seals) secrets before they reach the database, and opens them only for the jig that needs them.

Keys are in one file that only its owner can read, each with a number. The newest key seals; `resealing.py` seals again
under it what older keys sealed, and then the older keys can go.
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
    """The keys of a server, which seal and open values."""

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
        # Deterministic (SIV): a secret that is sealed twice compares equal, as the same data should.
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
        """Return the values with the sealed secret attribs opened: for a jig, never for a log or a response.

        A sealed value that is not that of a secret attrib was not sealed here, and stays as it is.
        """
        for attrib in attribs:
            value = read_at_path(values, attrib.map) if attrib.secret else MISSING
            if value is not MISSING and is_sealed(value):
                opened = self.open(value)
                values = merge(without_path(values, attrib.map), nest_at_path(attrib.map, opened))
        return values

    def seal_secrets(self, attribs: tuple[Attrib, ...], values: JsonObject) -> JsonObject:
        """Return the values with the secret attribs sealed."""
        for attrib in attribs:
            value = read_at_path(values, attrib.map) if attrib.secret else MISSING
            if value is not MISSING and not is_sealed(value):
                # Not merged over the secret, which would stay beside its seal if it is a mapping.
                values = merge(without_path(values, attrib.map), nest_at_path(attrib.map, self.seal(value)))
        return values

    def check_sealed(self, value: Json) -> None:
        """Refuse a sealed value from a caller that this vault did not seal."""
        try:
            self.open(value)
        except VaultLocked:
            raise Invalid("A sealed value cannot be made up; give the secret itself, or leave it as it is.") from None


def load_vault(home: Path) -> Vault:
    """Load the vault of a server; at the first start, make it."""
    path = home / KEY_FILE
    try:
        stored = json.loads(path.read_text())
    except FileNotFoundError:
        vault = Vault.fresh()
        save_vault(vault, home)
        return load_vault(home)
    decode = base64.b64decode
    return Vault({int(n): decode(key) for n, key in stored["keys"].items()}, decode(stored["fingerprint"]))


def save_vault(vault: Vault, home: Path) -> None:
    """Write the key file completely or not at all. Of two first starts at once, the second keeps the first one's."""
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
