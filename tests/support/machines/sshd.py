"""A real sshd for a server of a test network, with host keys of its own, that lives as long as the block."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.programs import make_ssh_key
from tests.support.waiting import wait_until

from rackwright.lab.namespaces import Network

CONFIG = """
Port 22
HostKey {folder}/host_ed25519
HostKey {folder}/host_rsa
AuthorizedKeysFile {folder}/authorized_keys
PidFile {folder}/sshd.pid
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
UsePAM no
LogLevel VERBOSE
Subsystem sftp internal-sftp
"""


@dataclass(frozen=True)
class Sshd:
    folder: Path

    def fingerprint(self, kind: str = "ed25519") -> str:
        said = subprocess.run(
            ["ssh-keygen", "-lf", str(self.folder / f"host_{kind}.pub")], capture_output=True, text=True, check=True
        )
        return said.stdout.split()[1]

    def authorize(self, line: str) -> None:
        (self.folder / "authorized_keys").write_text(line + "\n")

    def visits(self) -> int:
        return (self.folder / "sshd.log").read_text().count("Connection from")


@contextmanager
def sshd(folder: Path, wires: Network, server: str) -> Iterator[Sshd]:
    folder.mkdir(parents=True)
    for kind in ("ed25519", "rsa"):
        make_ssh_key(folder / f"host_{kind}", kind)
    (folder / "authorized_keys").touch()
    (folder / "sshd_config").write_text(CONFIG.format(folder=folder))
    Path("/run/sshd").mkdir(exist_ok=True)
    command = ["setpriv", "--pdeathsig", "KILL", "/usr/sbin/sshd", "-D", "-e", "-f", str(folder / "sshd_config")]
    with (folder / "sshd.log").open("wb") as log:
        process = subprocess.Popen(wires.command(server, command), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        log_file = folder / "sshd.log"
        wait_until(lambda: "Server listening" in log_file.read_text(), f"sshd of {server} listens")
        yield Sshd(folder)
    finally:
        process.kill()
        process.wait()
