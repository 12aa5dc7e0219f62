"""The script jig on 200 sshd targets: a script of one `true`, beside Ansible and pyinfra with the same number at once.

Each target is an sshd process of its own on a loopback address of its own, with its own host key, which all three tools
check. Ansible runs with pipelining, its own kept connections and no facts. Ours does more: fencing, attributes both
ways, a clean-up. The goals are on first runs, connects included. `--lighter` also measures what each of the others has
to run one command without a script, and `--again` their second runs, beside ours on kept connections.

    .venv/bin/python bench/script_jig.py --venvs FOLDER [--targets 200] [--at-once 50]
"""

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import asyncssh

from rackwright.domain.runs import Answer, Outcome, Run
from rackwright.jigs.script import ScriptJig
from rackwright.reach.parcel import NodeFolders
from rackwright.reach.ssh_connections import Connections, HostKeyWatch, Target
from report import at_least, emit
from waiting import until

PORT = 2222
STARTING_SECONDS = 60.0
SCRIPT, LIGHTER = "script", "lighter"
CONFIG = """
Port {port}
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {keys}
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
UsePAM no
UseDNS no
LogLevel ERROR
Subsystem sftp internal-sftp
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--venvs", type=Path, required=True, help="a folder for Ansible and pyinfra; used again if there"
    )
    parser.add_argument("--targets", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=1, help="how often each is measured; the median counts")
    parser.add_argument("--again", action="store_true", help="measure second runs of the others, too")
    parser.add_argument("--lighter", action="store_true", help="measure their plainest way to run a command, too")
    options = parser.parse_args()
    ansible = install(options.venvs / "ansible", "ansible-core")
    pyinfra = install(options.venvs / "pyinfra", "pyinfra")
    with tempfile.TemporaryDirectory(prefix="script-jig-bench-") as name, sshd_processes(Path(name), options.targets):
        measure(Path(name), options, ansible, pyinfra)


def install(folder: Path, package: str) -> Path:
    """The `bin` of a virtual environment with the package."""
    if not (folder / "bin" / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(folder / "bin/pip"), "install", "--quiet", package], check=True, stderr=subprocess.DEVNULL)
        (folder / "bin" / "installed").touch()
    return folder / "bin"


def address(number: int) -> str:
    return f"127.77.{number // 250}.{number % 250 + 1}"


@contextmanager
def sshd_processes(folder: Path, count: int) -> Iterator[None]:
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(str(folder / "key"))
    (folder / "key").chmod(0o600)
    key.write_public_key(str(folder / "authorized_keys"))
    Path("/run/sshd").mkdir(exist_ok=True)
    known = []
    for number in range(count):
        place = folder / f"target-{number}"
        place.mkdir()
        host_key = asyncssh.generate_private_key("ssh-ed25519")
        host_key.write_private_key(str(place / "host_key"))
        (place / "host_key").chmod(0o600)
        known.append(f"[{address(number)}]:{PORT} {host_key.export_public_key().decode().strip()}")
        (place / "sshd_config").write_text(
            CONFIG.format(port=PORT, address=address(number), folder=place, keys=folder / "authorized_keys")
        )
    (folder / "known_hosts").write_text("\n".join(known) + "\n")
    # In a process namespace, so that also what serves a connection dies with it; and with us, if we are killed.
    start = f"for place in {folder}/target-*; do /usr/sbin/sshd -D -f $place/sshd_config & done; wait"
    namespace = ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "sh", "-c", start]
    process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *namespace], stdin=subprocess.DEVNULL)
    try:
        asyncio.run(all_listen(count))
        yield
    finally:
        process.kill()
        process.wait()


async def all_listen(count: int) -> None:
    async def listens(number: int) -> bool:
        try:
            _, writer = await asyncio.open_connection(address(number), PORT)
        except OSError:
            return False
        writer.close()
        return True

    def listening(number: int) -> Awaitable[bool]:
        return until(lambda: listens(number), f"{address(number)} listens", STARTING_SECONDS, every=0.05)

    await asyncio.gather(*(listening(number) for number in range(count)))


def measure(folder: Path, options: argparse.Namespace, ansible: Path, pyinfra: Path) -> None:
    figures: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        first, second = asyncio.run(ours(folder, options.targets, options.at_once))
        figures.setdefault("ours_first", []).append(first)
        figures.setdefault("ours_kept", []).append(second)
        for name, run, programs in (("ansible", run_ansible, ansible), ("pyinfra", run_pyinfra, pyinfra)):
            figures.setdefault(f"{name}_first", []).append(run(folder, options, programs, SCRIPT))
            if options.again:
                figures.setdefault(f"{name}_again", []).append(run(folder, options, programs, SCRIPT, fresh=False))
            if options.lighter:
                figures.setdefault(f"{name}_lighter", []).append(run(folder, options, programs, LIGHTER))
    medians = {name: sorted(values)[len(values) // 2] for name, values in figures.items()}
    emit(
        "script_jig",
        {
            "targets": options.targets,
            "at_once": options.at_once,
            "sshd_processes": options.targets,
            "rounds": options.rounds,
            "load_average": os.getloadavg()[0],
            **{f"{name}_s": round(value, 2) for name, value in medians.items()},
            "versions": {"ansible-core": version(ansible, "ansible-core"), "pyinfra": version(pyinfra, "pyinfra")},
        },
        [
            at_least("times faster than Ansible", medians["ansible_first"] / medians["ours_first"], 5),
            at_least("times faster than pyinfra", medians["pyinfra_first"] / medians["ours_first"], 1),
        ],
    )


def version(programs: Path, package: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run(
        [str(programs / "python"), "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


async def ours(folder: Path, count: int, at_once: int) -> tuple[float, float]:
    """Seconds of a first run, and of a second one on the connections kept from it."""
    shutil.rmtree(folder / "nodes", ignore_errors=True)
    script = folder / "10-true.sh"
    script.write_text("true\n")
    known = dict(line.split(" ", 1) for line in (folder / "known_hosts").read_text().splitlines())

    async def scripts(run: Run) -> list[Path]:
        return [script]

    async def target(number: int) -> Target:
        # They share one disk, and must not fence each other off.
        folders = NodeFolders(f"{folder}/nodes/{number}/locks", f"{folder}/nodes/{number}/work")
        return Target(address(number), PORT, host_key=known[f"[{address(number)}]:{PORT}"], folders=folders)

    async def unexpected(node_id: int, host_key: str) -> None:
        raise AssertionError(f"target {node_id} has an unexpected key")

    key = asyncssh.read_private_key(str(folder / "key"))
    jig = ScriptJig(scripts, target, Connections(key, HostKeyWatch(unexpected, unexpected), deadline=120, limit=count))
    gate = asyncio.Semaphore(at_once)

    async def one(number: int, token: int) -> Outcome:
        async with gate:
            run = Run(token, number, number, f"n{number}", "true", "script", "script", {}, deadline=600)
            return await jig.run(run, lambda line: None)

    async def all_of_them(token: int) -> float:
        begun = time.perf_counter()
        outcomes = await asyncio.gather(*(one(number, token) for number in range(count)))
        took = time.perf_counter() - begun
        for outcome in outcomes:
            assert outcome.answer is Answer.SUCCEEDED, outcome.error
        return took

    seconds = await all_of_them(1), await all_of_them(2)
    await jig.close()
    return seconds


def timed(command: Sequence[str], folder: Path, environment: dict[str, str]) -> float:
    begun = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    took = time.perf_counter() - begun
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return took


def run_ansible(folder: Path, options: argparse.Namespace, programs: Path, what: str, fresh: bool = True) -> float:
    """Its script module copies a script and runs it; `raw` sends one command."""
    hosts = "\n".join(address(number) for number in range(options.targets))
    (folder / "inventory.ini").write_text(f"[all]\n{hosts}\n")
    task = {SCRIPT: f"script: {folder}/10-true.sh", LIGHTER: "raw: 'true'"}[what]
    (folder / "play.yml").write_text(f"- hosts: all\n  gather_facts: false\n  tasks:\n    - {task}\n")
    sockets = folder / "ansible-sockets"
    if fresh:
        sockets = Path(tempfile.mkdtemp(dir=folder, prefix="s"))
        (folder / "ansible-sockets").unlink(missing_ok=True)
        (folder / "ansible-sockets").symlink_to(sockets)
    environment = {
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder / "ansible-sockets"),
        "ANSIBLE_SSH_COMMON_ARGS": f"-o UserKnownHostsFile={folder}/known_hosts -o IdentitiesOnly=yes",
        "ANSIBLE_REMOTE_PORT": str(PORT),
        "ANSIBLE_REMOTE_USER": "root",
        "ANSIBLE_PRIVATE_KEY_FILE": str(folder / "key"),
        "ANSIBLE_HOME": str(folder / "ansible"),
        "ANSIBLE_NOCOLOR": "1",
    }
    command = [str(programs / "ansible-playbook"), "-i", "inventory.ini", "-f", str(options.at_once), "play.yml"]
    return timed(command, folder, environment)


def run_pyinfra(folder: Path, options: argparse.Namespace, programs: Path, what: str, fresh: bool = True) -> float:
    """Its script operation does the same, and `shell` the lighter thing. It keeps no connection: all runs are fresh."""
    settings = {"ssh_user": "root", "ssh_port": PORT, "ssh_key": f"{folder}/key"}
    settings["ssh_known_hosts_file"] = f"{folder}/known_hosts"
    hosts = [address(number) for number in range(options.targets)]
    (folder / "inventory.py").write_text(f"targets = ({hosts!r}, {settings!r})\n")
    task = {SCRIPT: f"script(src={f'{folder}/10-true.sh'!r})", LIGHTER: "shell(commands=['true'])"}[what]
    (folder / "deploy.py").write_text(f"from pyinfra.operations import server\nserver.{task}\n")
    command = [str(programs / "pyinfra"), "-y", "--parallel", str(options.at_once), "inventory.py", "deploy.py"]
    return timed(command, folder, {"HOME": str(folder)})


if __name__ == "__main__":
    main()
