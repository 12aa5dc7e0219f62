"""A node for the script jig: a real sshd in network, process and mount namespaces of its own.

Nothing of it outlives the block, or the test process if that is killed: the namespaces live only as long as their
first process, and that one dies with its parent.
"""

import os
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncssh
import psutil
from tests.support.programs import make_ssh_key
from tests.support.waiting import wait_until

from rackwright.reach.parcel import NodeFolders
from rackwright.reach.ssh_connections import Target

CONFIG = """
Port {port}
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
UsePAM no
UseDNS no
LogLevel VERBOSE
"""
MORTALS_KEYS = """
Match User mortal
AuthorizedKeysFile /run/mortal/keys
"""
# A node's own /run and /var/lib; then it waits for its network.
BOOT = """
mount -t tmpfs none /run && mount -t tmpfs none /var/lib && mkdir -m 755 /run/sshd || exit 1
{more}
exec /usr/sbin/sshd -D -e -f {folder}/sshd_config
"""
MORTAL = "mortal:x:4242:65534::/run/mortal:/bin/sh\n"
DIES_WITH_US = ["setpriv", "--pdeathsig", "KILL"]


class SshNode:
    def __init__(
        self,
        folder: Path,
        busybox: bool = False,
        port: int = 22,
        own_home: bool = False,
        programs: Path | None = None,
    ) -> None:
        self.folder = folder
        self.port = port
        self._own_home = own_home
        self._programs = programs
        self._busybox = busybox
        self.link = f"rw{os.getpid() % 100000}{random.randrange(1000)}"
        self.address = ""
        self._network: subprocess.Popen[bytes] | None = None
        self._system: subprocess.Popen[bytes] | None = None

    @property
    def host_key(self) -> str:
        return (self.folder / "host_key.pub").read_text().strip()

    def target(self, host_key: str | None = "pinned", first_use: bool = False) -> Target:
        key = self.host_key if host_key == "pinned" else host_key
        return Target(self.address, self.port, host_key=key, first_use=first_use, node="n1.example")

    def new_host_key(self, kind: str = "ed25519") -> None:
        for name in ("host_key", "host_key.pub"):
            (self.folder / name).unlink(missing_ok=True)
        make_ssh_key(self.folder / "host_key", kind)

    def authorize(self, key: asyncssh.SSHKey) -> None:
        (self.folder / "authorized_keys").write_bytes(key.export_public_key())

    def boot(self) -> None:
        assert self._network is not None
        more = self._homes() if self._own_home else ""
        if self._programs is not None:
            more += self._own_etc()
        # Where the node's addresses change, its sshd answers on all of them.
        config = CONFIG.format(
            address=self.address if self._programs is None else "0.0.0.0", folder=self.folder, port=self.port
        )
        if self._busybox:
            more += self._only_busybox()
            config += f"SetEnv PATH={self.folder}/applets\n"
        elif self._programs is not None:
            config += f"SetEnv PATH={self._programs}:/usr/sbin:/usr/bin:/sbin:/bin\n"
        if self._own_home:
            config += MORTALS_KEYS
        (self.folder / "sshd_config").write_text(config)
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
        inside = ["nsenter", "-t", str(self._network.pid), "-n", *unshare]
        script = BOOT.format(folder=self.folder, more=more)
        with (self.folder / "sshd.log").open("ab") as log:
            before = self._log().count("Server listening")
            self._system = subprocess.Popen(
                [*DIES_WITH_US, *inside, "sh", "-c", script], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait_until(lambda: self._log().count("Server listening") > before, lambda: f"sshd listens: {self._log()}")

    def shut_down(self) -> None:
        """At once, like a power cut: every process dies; the network stays and says that nobody listens."""
        if self._system is not None:
            first = self._first()
            if first is not None:
                os.kill(first, signal.SIGKILL)
            self._system.kill()
            self._system.wait()
            self._system = None

    def plug_in(self) -> None:
        """A wire to us, of two addresses that nobody has."""
        self._network = subprocess.Popen([*DIES_WITH_US, "unshare", "--net", "sleep", "infinity"])
        pid = self._network.pid
        ours = os.readlink("/proc/self/ns/net")
        wait_until(lambda: os.readlink(f"/proc/{pid}/ns/net") != ours, "there is a network namespace")
        _ip("link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        prefix = f"10.{random.randrange(200, 250)}.{random.randrange(256)}.{4 * random.randrange(64)}".rpartition(".")
        near, far = (f"{prefix[0]}.{int(prefix[2]) + host}" for host in (1, 2))
        _ip("addr", "add", f"{near}/30", "dev", self.link)
        _ip("link", "set", self.link, "up")
        for words in (["addr", "add", f"{far}/30", "dev", "eth0"], ["link", "set", "eth0", "up"]):
            subprocess.run(["nsenter", "-t", str(pid), "-n", "ip", *words], check=True)
        self.address = far

    def cut_wire(self) -> None:
        _ip("link", "set", self.link, "down")

    def mend_wire(self) -> None:
        _ip("link", "set", self.link, "up")

    def unplug(self) -> None:
        if self._network is not None:
            self._network.kill()
            self._network.wait()
            subprocess.run(["ip", "link", "del", self.link], stderr=subprocess.DEVNULL, check=False)
            wait_until(lambda: not Path(f"/sys/class/net/{self.link}").exists(), "the wire is gone")

    def path(self, inside: str) -> Path:
        """A path on the node, as we see it."""
        return Path(f"/proc/{self._first()}/root{inside}")

    def processes(self) -> list[tuple[str, psutil.Process]]:
        """Everything alive on the node but sshd, with its command line."""
        first = self._first()
        if first is None:
            return []
        namespace = os.readlink(f"/proc/{first}/ns/pid")
        found = []
        for process in psutil.process_iter():
            try:
                inside = os.readlink(f"/proc/{process.pid}/ns/pid") == namespace
                if inside and process.status() != psutil.STATUS_ZOMBIE and process.name() != "sshd":
                    found.append((" ".join(process.cmdline()), process))
            except (OSError, psutil.NoSuchProcess):
                continue
        return found

    def left_behind(self) -> list[str]:
        """Processes and files of runs that are still there."""
        folders = [str(path) for path in self.path(NodeFolders().work).glob("*")]
        return [command for command, _ in self.processes()] + folders

    def visits(self) -> int:
        """How many connections sshd saw."""
        return self._log().count("Connection from")

    def _first(self) -> int | None:
        """The first process of the node, by our numbering."""
        if self._system is None:
            return None
        children = psutil.Process(self._system.pid).children()
        return children[0].pid if children else None

    def _log(self) -> str:
        log = self.folder / "sshd.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def _homes(self) -> str:
        """Of root, and of a user who cannot become root."""
        passwd = self.folder / "passwd"
        passwd.write_text(Path("/etc/passwd").read_text() + MORTAL)
        return (
            f"mount --bind {passwd} /etc/passwd && mount -t tmpfs none /root && mkdir /run/mortal"
            f" && cp {self.folder}/authorized_keys /run/mortal/keys && chown -R 4242 /run/mortal || exit 1\n"
        )

    def _own_etc(self) -> str:
        """An /etc that is the node's, and stays when it boots anew."""
        etc = self.folder / "etc"
        if not etc.exists():
            subprocess.run(["cp", "-a", "/etc", str(etc)], check=True)
        return f"mount --bind {etc} /etc || exit 1\n"

    def _only_busybox(self) -> str:
        """Every program that a run can find, shells first of all, is busybox."""
        busybox = shutil.which("busybox")
        assert busybox is not None, "busybox is not installed"
        applets = self.folder / "applets"
        if not applets.exists():
            applets.mkdir()
            subprocess.run([busybox, "--install", "-s", str(applets)], check=True)
            passwd = (Path("/etc/passwd").read_text() + MORTAL).splitlines()
            root_shell = [line.rpartition(":")[0] + ":/bin/sh" if line.startswith("root:") else line for line in passwd]
            (self.folder / "passwd").write_text("\n".join(root_shell) + "\n")
        return (
            f"mount --bind {self.folder}/passwd /etc/passwd && mount --bind {busybox} $(readlink -f /bin/sh) || exit 1"
        )


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextmanager
def ssh_node(
    folder: Path,
    key: asyncssh.SSHKey,
    busybox: bool = False,
    port: int = 22,
    own_home: bool = False,
    programs: Path | None = None,
) -> Iterator[SshNode]:
    """A node that lets `key` in. With `own_home` root's home there is its own, too.

    With `programs` it has these before all others, and an /etc of its own.
    """
    folder.mkdir(parents=True)
    node = SshNode(folder, busybox, port, own_home, programs)
    node.new_host_key()
    node.authorize(key)
    try:
        node.plug_in()
        node.boot()
        yield node
    finally:
        node.shut_down()
        node.unplug()
