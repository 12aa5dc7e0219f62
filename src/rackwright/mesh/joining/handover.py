"""What a joiner and its visitor agree on: the files of the handover, and the SSH key the cluster visits with."""

from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rackwright.mesh.errors import BadIdentity
from rackwright.private_files import write_private_file

PUBLIC, CERTIFICATE, CA = "join.pub", "join.crt", "join.ca"


def ensure_key(path: Path) -> str:
    """The key this cluster logs in with, made once; returns the line for an authorized_keys file."""
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
    # Enough to read one file and place two, and nothing else, should it ever be stolen.
    return f'restrict,command="internal-sftp" {public.decode()} rackwright-mesh'
