"""The server's TLS certificate: one from the settings, or one made here at the first start and renewed before it ends.

A certificate made here is no authority: a client that trusts it trusts just this one, by its file or fingerprint.
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
class CertificateFiles:
    """The files of a certificate and its key."""

    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        self.load_into(context)
        return context

    def load_into(self, context: ssl.SSLContext) -> None:
        """Load certificate and key into a TLS context; new connections use them from now on."""
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


def choose_certificate(options: Options, host: str) -> CertificateFiles | None:
    """Return the certificate to serve with; None: plain HTTP, which beyond this host nobody gets by accident."""
    if options.tls:
        if options.tls_certificate is not None and options.tls_key is not None:
            return CertificateFiles(options.tls_certificate, options.tls_key)
        return ensure_self_signed(options.home, certificate_names(options, host))
    if not options.loopback and not options.insecure_http:
        raise SettingsInvalid(
            f"Passwords and tokens would cross the network in the clear on {options.host}. Use --tls, which makes a "
            "certificate if you give none; or --insecure-http, where something in front of this server speaks TLS."
        )
    return None


def certificate_names(options: Options, host: str) -> list[str]:
    """Return the names and addresses under which this host is reached."""
    names = [host, socket.gethostname(), "localhost", "127.0.0.1", "::1", *options.tls_names]
    if options.host not in ("0.0.0.0", "::", ""):  # noqa: S104  # compared, not bound
        names.append(options.host)
    return sorted(set(names))


def ensure_self_signed(home: Path, names: Iterable[str], now: datetime.datetime | None = None) -> CertificateFiles:
    """Return the self-signed certificate of this home; it is made anew if it ends soon or lacks one of the names."""
    files = CertificateFiles(home / "tls" / "certificate.pem", home / "tls" / "key.pem")
    moment = now or datetime.datetime.now(datetime.UTC)
    all_names = list(names)
    if not _is_usable(files, all_names, moment):
        _create(files, all_names, moment)
        shown_names = ", ".join(all_names)
        log.warning("Made a certificate for %s: %s, SHA-256 %s", shown_names, files.certificate, files.fingerprint)
    return files


def _is_usable(files: CertificateFiles, names: list[str], now: datetime.datetime) -> bool:
    try:
        loaded = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        files.context()
    except (FileNotFoundError, ValueError, SettingsInvalid):
        return False
    present = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return set(_general_names(names)) <= set(present) and loaded.not_valid_after_utc - now > RENEW_BEFORE


def _create(files: CertificateFiles, names: list[str], now: datetime.datetime) -> None:
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
        .add_extension(x509.SubjectAlternativeName(_general_names(names)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files.key.parent.mkdir(parents=True, exist_ok=True)  # not for us alone: everybody may read the certificate
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_private_file(files.key, private)
    write_private_file(files.certificate, certificate.public_bytes(Encoding.PEM), mode=0o644)


def _general_names(names: list[str]) -> list[x509.GeneralName]:
    general_names: list[x509.GeneralName] = []
    for name in names:
        try:
            general_names.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            general_names.append(x509.DNSName(name))
    return general_names


async def keep_certificate_fresh(
    context: ssl.SSLContext, options: Options, host: str, every: float = LOOK_EVERY
) -> None:
    """Renew a certificate made here, and load one that somebody renewed, without a restart. Runs until cancelled."""
    loaded_times: tuple[float, ...] = ()

    async def load_if_changed() -> None:
        nonlocal loaded_times
        try:
            files = choose_certificate(options, host)
            assert files is not None
            times = tuple(path.stat().st_mtime for path in (files.certificate, files.key))
            if times != loaded_times:
                files.load_into(context)
                loaded_times = times
        except (SettingsInvalid, OSError) as error:
            # Certificate or key may just be being replaced; the loaded pair stays in use.
            log.warning("The certificate on disk is not taken up: %s", error)

    await Loop(None, tick=every, purpose="take up the certificate on disk").run(load_if_changed)
