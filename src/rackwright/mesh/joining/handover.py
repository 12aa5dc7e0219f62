"""The handover of a certificate over SSH: the names of its files, and the SSH key with which the cluster logs in."""

from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rackwright.mesh.errors import BadIdentity
from rackwright.private_files import write_private_file

PUBLIC, CERTIFICATE, CA = "join.pub", "join.crt", "join.ca"
"""Files in the joiner's folder: the joiner writes the first, the visiting member the others."""


def ensure_key(path: Path) -> str:
    """Make the key with which the cluster logs in, unless it exists; return its line for an authorized_keys file."""
    if not path.exists():
        write_private_file(
            path,
            Ed25519PrivateKey.generate().private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
            ),
        )
    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), None)
    except (ValueError, TypeError) as problem:
        raise BadIdentity(f"{path} is not an SSH key; delete it, and a new one is made") from problem
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    # Enough to read one file and place two over SFTP, and for nothing else, should the key ever be stolen.
    return f'restrict,command="internal-sftp" {public.decode()} rackwright-mesh'
