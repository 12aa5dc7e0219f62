"""The cluster's CA: its key, encrypted at rest, and the certificates, revocations and tokens made with it.

It signs all that callers ask for; whether a server deserves a certificate is decided in `mesh/joining/admission.py`.
"""

import hashlib
import hmac
import ipaddress
import os
import secrets
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rackwright.mesh.errors import BadIdentity
from rackwright.mesh.identity.admission_records import FileRecords, IssuedCertificate, Records
from rackwright.mesh.identity.revocation import sign_revocations
from rackwright.mesh.identity.server_identity import (
    NUMBER_SHIFT,
    certificate_pem,
    checked_name,
    key_digest,
    new_key,
    read_certificate,
)
from rackwright.private_files import write_private_file

LIFE = timedelta(days=7)
CA_LIFE = timedelta(days=3650)
BACKDATE = timedelta(hours=1)
"""How far a server's clock may be behind the CA's and still accept a fresh certificate."""
CREDENTIAL = "rackwright-ca-passphrase"
"""The systemd credential (LoadCredentialEncrypted=) that holds the passphrase, where there is one."""


class Authority:
    """The cluster's CA, ready to sign."""

    def __init__(self, key: Ed25519PrivateKey, ca: x509.Certificate, records: Records, life: timedelta = LIFE) -> None:
        self.key, self.ca, self.records, self.life = key, ca, records, life
        self._token_key = HKDF(hashes.SHA256(), 32, None, b"rackwright join tokens 1").derive(key.private_bytes_raw())

    async def issue(self, name: str, key: Ed25519PublicKey, address: str = "") -> x509.Certificate:
        """Return a new certificate for a name, good for both sides of a connection. It is recorded before it is
        returned.

        With its IP address in it the server can be a datastore: etcd knows its peers by address, not by name.
        """
        number = await self.records.next_number()
        now = datetime.now(UTC)
        expires = now + self.life
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, checked_name(name))]))
            .issuer_name(self.ca.subject)
            .public_key(key)
            .serial_number(number << NUMBER_SHIFT | secrets.randbits(NUMBER_SHIFT))
            .not_valid_before(now - min(BACKDATE, self.life / 10))
            .not_valid_after(expires)
            .add_extension(_alternative_names(name, address), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(ca=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .sign(self.key, None)
        )
        await self.records.add_certificate(
            IssuedCertificate(
                name,
                number,
                key_digest(key),
                int(expires.timestamp()),
                address,
                f"{certificate.serial_number:x}",
            ),
            int(time.time()),
        )
        return certificate

    async def address_of(self, name: str) -> str:
        """Return the address in the newest certificate of a name: a renewal keeps it, and takes no new one."""
        certificates = [issued for issued in await self.records.certificates() if issued.name == name]
        return max(certificates, key=lambda issued: issued.number).address if certificates else ""

    async def revoke(self, name: str) -> bytes:
        """Revoke every certificate of a name, and return the new signed list."""
        return sign_revocations(await self.records.revoke(name, int(time.time())), self.key)

    async def revocations(self) -> bytes:
        """Return the signed list of revocations."""
        return sign_revocations(await self.records.revocations(), self.key)

    def token_secret(self, id: str) -> bytes:
        """Return the secret of a token. It follows from its id and the CA's key, so no record has to hold it."""
        return hmac.digest(self._token_key, id.encode(), "sha256")


def token_proof(secret: bytes, key: Ed25519PublicKey, ca_fingerprint: str, address: str = "") -> str:
    """Return the proof that a joiner sends in place of the secret.

    It is good for the joiner's own key and address only, so a member that relays it can neither use nor alter it.
    """
    return hmac.new(secret, f"{key_digest(key)} {ca_fingerprint} {address}".encode(), hashlib.sha256).hexdigest()


def is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def plain_ip(host: str) -> str:
    """Return an IP address in one spelling: without the zone, and IPv4 as such where it came in over IPv6."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _alternative_names(name: str, address: str) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = [x509.DNSName(name)]
    if is_ip(address):
        names.append(x509.IPAddress(ipaddress.ip_address(address)))
    return x509.SubjectAlternativeName(names)


def _key_usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )


class AuthorityFiles:
    """The files of the CA: `ca.key` is encrypted with a passphrase that may be stored elsewhere."""

    def __init__(self, folder: Path, passphrase_file: Path | None = None) -> None:
        self.folder = folder
        self.key, self.ca, self.records = folder / "ca.key", folder / "ca.pem", folder / "records.json"
        credentials = os.environ.get("CREDENTIALS_DIRECTORY")
        credential = Path(credentials) / CREDENTIAL if credentials else None
        if passphrase_file is None:
            passphrase_file = credential if credential and credential.exists() else folder / "ca.passphrase"
        self.passphrase_file = passphrase_file

    def exist(self) -> bool:
        return self.key.exists()

    def create(self, cluster: str, life: timedelta = LIFE) -> Authority:
        """Make a new CA for a cluster of this name."""
        if not self.passphrase_file.exists():
            write_private_file(self.passphrase_file, secrets.token_urlsafe(32).encode() + b"\n")
        key = new_key()
        ca = _self_signed(key, cluster)
        encryption = serialization.BestAvailableEncryption(self._passphrase())
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        write_private_file(self.ca, certificate_pem(ca))
        write_private_file(self.key, pem)
        return Authority(key, ca, FileRecords(self.records, key), life)

    def open(self, life: timedelta = LIFE) -> Authority:
        """Read the CA, or raise BadIdentity."""
        try:
            key = serialization.load_pem_private_key(self.key.read_bytes(), self._passphrase())
        except (ValueError, TypeError) as problem:
            raise BadIdentity(f"{self.passphrase_file} does not open the CA's key {self.key}") from problem
        if not isinstance(key, Ed25519PrivateKey):
            raise BadIdentity(f"{self.key} is not an ed25519 key")
        ca = read_certificate(self.ca.read_bytes(), "cluster's CA")
        return Authority(key, ca, FileRecords(self.records, key), life)

    def _passphrase(self) -> bytes:
        try:
            return self.passphrase_file.read_bytes().strip()
        except FileNotFoundError as problem:
            raise BadIdentity(
                f"the CA's passphrase is not in {self.passphrase_file}; put it there or name its file in agent.yml as"
                " ca_passphrase_file"
            ) from problem


def _self_signed(key: Ed25519PrivateKey, cluster: str) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"rackwright mesh {checked_name(cluster)}")])
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(ca=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, None)
    )
