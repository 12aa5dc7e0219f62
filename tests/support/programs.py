"""Programs of the machine that tests use, asked for by name where one is missing, and what tests make with them."""

import shutil
import subprocess
from pathlib import Path


def need_program(program: str, package: str) -> str:
    """Return where a program is. A test that misses it fails with the command that installs it."""
    path = shutil.which(program)
    assert path is not None, f"this test needs {program}. Install it: apt-get install {package}"
    return path


def make_ssh_key(path: Path, kind: str = "ed25519") -> Path:
    """Make a key pair without a passphrase as OpenSSH does; the public half is beside it, with the ending .pub."""
    keygen = need_program("ssh-keygen", "openssh-client")
    subprocess.run([keygen, "-q", "-t", kind, "-N", "", "-C", "test", "-f", str(path)], check=True)
    return path
