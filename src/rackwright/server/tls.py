"""The server's certificate: the given one, or one made here at the first start and renewed before it ends.

A self-made certificate is no authority: whoever wants to trust it trusts just this one, by its file or fingerprint.
"""

import datetime
import ipaddress
import logging
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rackwright.annealer.loop import Loop
from rackwright.private_files import write_private_file
from rackwright.server.settings import Options, SettingsInvalid

log = logging.getLogger(__name__)

LIFETIME = datetime.timedelta(days=397)
"""The longest that browsers accept."""
RENEW_BEFORE = datetime.timedelta(days=30)
LOOK_EVERY = 3600.0


@dataclass(frozen=True)
class Certificate:
    """Where certificate and key are."""

    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        self.load_into(context)
        return context

    def load_into(self, context: ssl.SSLContext) -> None:
        """New connections use it from now on."""
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise SettingsInvalid(
                f"The certificate {self.certificate} and the key {self.key} cannot be used: {error}."
            ) from None

    @property
    def fingerprint(self) -> str:
        loaded = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        return loaded.fingerprint(hashes.SHA256()).hex(":")


def certificate_of(options: Options, host: str) -> Certificate | None:
    """What to serve with; None: plain HTTP, which beyond this host nobody gets by accident."""
    if options.tls:
        if options.tls_certificate is not None and options.tls_key is not None:
            return Certificate(options.tls_certificate, options.tls_key)
        return self_made(options.home, names_of(options, host))
    if not options.loopback and not options.insecure_http:
        raise SettingsInvalid(
            f"Passwords and tokens would cross the network in the clear on {options.host}. Use --tls, which makes a "
            "certificate if you give none; or --insecure-http, where something in front of this server speaks TLS."
        )
    return None


def names_of(options: Options, host: str) -> list[str]:
    """Under which this host is reached."""
    names = [host, socket.gethostname(), "localhost", "127.0.0.1", "::1", *options.tls_names]
    if options.host not in ("0.0.0.0", "::", ""):  # noqa: S104  # asked, not bound
        names.append(options.host)
    return sorted(set(names))


def self_made(home: Path, names: Iterable[str], now: datetime.datetime | None = None) -> Certificate:
    """The certificate of this home, made anew if it ends soon or lacks one of the names."""
    made = Certificate(home / "tls" / "certificate.pem", home / "tls" / "key.pem")
    moment = now or datetime.datetime.now(datetime.UTC)
    wanted = list(names)
    if not _serves(made, wanted, moment):
        _make(made, wanted, moment)
        log.warning("Made a certificate for %s: %s, SHA-256 %s", ", ".join(wanted), made.certificate, made.fingerprint)
    return made


def _serves(made: Certificate, names: list[str], now: datetime.datetime) -> bool:
    try:
        loaded = x509.load_pem_x509_certificate(made.certificate.read_bytes())
        made.context()
    except (FileNotFoundError, ValueError, SettingsInvalid):
        return False
    present = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return set(_general(names)) <= set(present) and loaded.not_valid_after_utc - now > RENEW_BEFORE


def _make(made: Certificate, names: list[str], now: datetime.datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Rackwright")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectAlternativeName(_general(names)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    made.key.parent.mkdir(parents=True, exist_ok=True)  # not for us alone: everybody may read the certificate
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_private_file(made.key, private)
    write_private_file(made.certificate, certificate.public_bytes(Encoding.PEM), mode=0o644)


def _general(names: list[str]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


async def keep_fresh(context: ssl.SSLContext, options: Options, host: str, every: float = LOOK_EVERY) -> None:
    """Renew what we made, and take up what somebody renewed, without a restart. Runs until cancelled."""
    loaded: tuple[float, ...] = ()

    async def take_up() -> None:
        nonlocal loaded
        try:
            certificate = certificate_of(options, host)
            assert certificate is not None
            found = tuple(path.stat().st_mtime for path in (certificate.certificate, certificate.key))
            if found != loaded:
                certificate.load_into(context)
                loaded = found
        except (SettingsInvalid, OSError) as error:
            # Half of a pair may just be being replaced; what is loaded serves on.
            log.warning("The certificate on disk is not taken up: %s", error)

    await Loop(None, tick=every, purpose="take up the certificate on disk").run(take_up)
