"""A fleet of mesh agents on this machine, as real processes: for `mesh demo`, for tests and for benchmarks.

Starts, kills, pauses and queries them. Their network, if they have one of their own, is `namespaces.py`.
"""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rackwright.lab.namespaces import Network
from rackwright.mesh import agent_settings, control
from rackwright.mesh.address import PORT, parse_address
from rackwright.mesh.datastore.datastore_settings import DatastoreConfig
from rackwright.mesh.errors import MeshError, NoAgent, Unreachable
from rackwright.parent_death import DIES_WITH_US


class NotRunning(MeshError):
    """That server's agent does not run"""

    code = "not_running"


class Fleet:
    """The agents of `servers`, each with its own folder below `folder`.

    Their process ids are stored there, so that another process can continue with the fleet.
    """

    def __init__(
        self,
        folder: Path,
        servers: Sequence[str],
        network: Network | None,
        *,
        die_with_me: bool,
        datastore: DatastoreConfig | None = None,
        swim: Mapping[str, Any] | None = None,
        patience: float = 60.0,
    ) -> None:
        """`die_with_me`: agents end with this process. Without `datastore` no agent runs a datastore.

        `swim`: protocol settings that differ from the defaults. `patience`: seconds after which any wait is given up.
        """
        self.folder, self.servers, self.network = folder, list(servers), network
        self.datastore = datastore or DatastoreConfig(eligible=False)
        self.swim = dict(swim or {})
        self.patience = patience
        self.die_with_me = die_with_me
        self.environment: dict[str, dict[str, str]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def home(self, server: str) -> Path:
        return self.folder / server

    def address(self, server: str) -> str:
        """Return the address of a server. Without a network it is a loopback address that no other fleet has."""
        if self.network:
            return f"{self.network.address(server)}:{PORT}"
        high, low = divmod(os.getpid() % 65_024, 256)
        return f"127.{high + 1}.{low}.{self.servers.index(server) + 1}:{PORT}"

    # Creating a cluster

    def create_cluster(self, **options: str) -> None:
        """Create the cluster on the first server, and admit every other server with a token."""
        first = self.servers[0]
        self.rackwright(first, "mesh", "init", "--name", first, "--advertise", self.address(first), *_flags(options))
        self.configure(first, datastore=self.datastore, swim=self.swim)
        self.start(first)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self.admit, self.servers[1:]))

    def admit(self, server: str) -> None:
        """Admit a server with a token. On loopback all servers have the same source, so the token names the address."""
        address = parse_address(self.address(server))
        token = self.ask(self.servers[0], "token", name=server, seconds=600, address=address.host)["token"]
        self.rackwright(server, "mesh", "join", "--token-file", "-", "--advertise", str(address), typed=token)
        self.configure(server, datastore=self.datastore, swim=self.swim)

    def start_all(self) -> None:
        for server in self.servers:
            if not self.running(server):
                self.start(server, wait=False)
        for server in self.servers:
            self.wait_for_agent(server)

    def configure(self, server: str, **changes: Any) -> None:
        """Change a server's settings; its agent reads them when it starts."""
        home = self.home(server)
        agent_settings.save(home, dataclasses.replace(agent_settings.load(home), **changes))

    # Processes

    def start(self, server: str, *, wait: bool = True) -> int:
        home = self.home(server)
        arguments = [sys.executable, "-m", "rackwright", "agent", "run", "--dir", str(home)]
        if self.die_with_me:
            arguments = [*DIES_WITH_US, *arguments]
        if self.network:
            arguments = self.network.command(server, arguments)
        with (home / "agent.log").open("ab") as log:
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **self.environment.get(server, {})},
            )
        self._processes[server] = process
        (home / "agent.pid").write_text(str(process.pid))
        if wait:
            self.wait_for_agent(server)
        return process.pid

    def wait_for_agent(self, server: str) -> None:
        def answers() -> bool:
            process = self._processes.get(server)
            if process is not None and process.poll() is not None:
                raise NotRunning(f"the agent of {server} ended at once; its log is {self.home(server) / 'agent.log'}")
            with contextlib.suppress(NoAgent):
                self.ask(server, "status")
                return True
            return False

        self.wait_until(answers, f"the agent of {server} does not answer")

    def pid(self, server: str) -> int:
        """Return the agent's process id. Raises NotRunning if no process has it, or one that is not this agent."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.home(server) / "agent.pid").read_text())
            if str(self.home(server)).encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                return pid
        raise NotRunning(f"the agent of {server} does not run; bring it back with: rackwright mesh demo heal")

    def running(self, server: str) -> bool:
        try:
            return self.pid(server) > 0
        except NotRunning:
            return False

    def signal(self, server: str, number: signal.Signals) -> None:
        os.kill(self.pid(server), number)

    def kill(self, *servers: str) -> None:
        """Kill agents, all at once, and wait until the processes that end with them (their etcd) have ended too."""
        started = [process for server in servers for process in self.processes(server)]
        for server in servers:
            self.signal(server, signal.SIGKILL)
        for server in servers:
            self._reap(server)
        names = ", ".join(servers)
        self.wait_until(lambda: not any(map(_runs, started)), f"what {names} had started does not end", every=0.01)

    def processes(self, server: str) -> list[int]:
        """Return the process ids of a server's agent and of the processes it has started."""
        agent = self.pid(server)
        with contextlib.suppress(OSError):
            return [agent, *map(int, Path(f"/proc/{agent}/task/{agent}/children").read_text().split())]
        return [agent]

    def stop(self, server: str) -> None:
        """Ask the agent to leave, and wait until it has."""
        self.signal(server, signal.SIGTERM)
        self._reap(server)

    def pause(self, server: str) -> None:
        self.signal(server, signal.SIGSTOP)

    def resume(self, server: str) -> None:
        self.signal(server, signal.SIGCONT)

    def end(self) -> None:
        """Kill all agents that still run. Never fails: this is the clean-up."""
        for server in self.servers:
            with contextlib.suppress(NotRunning, ProcessLookupError):
                self.kill(server)

    def _reap(self, server: str) -> None:
        process = self._processes.pop(server, None)
        if process is not None:
            process.wait(self.patience)
        else:
            self.wait_until(lambda: not self.running(server), f"the agent of {server} does not end")

    # Asking

    def ask(self, server: str, do: str, /, **fields: Any) -> dict[str, Any]:
        return control.ask(self.home(server), do, **fields)

    def states(self, server: str) -> dict[str, str]:
        """Return the state of each member in this server's view."""
        return {member["name"]: member["state"] for member in self.ask(server, "members")["members"]}

    def agree(self, expected: Mapping[str, str], among: Sequence[str] | None = None) -> bool:
        """Return whether all of the servers (`among` them) have exactly these member states."""
        return all(self.states(server) == dict(expected) for server in among or self.servers)

    def wait_agree(self, expected: Mapping[str, str], among: Sequence[str] | None = None) -> None:
        """Wait until all of the servers (`among` them) have exactly these member states."""
        servers = list(among or self.servers)
        try:
            self.wait_until(lambda: self.agree(expected, servers), "they do not agree", every=0.2)
        except Unreachable as problem:
            states = {server: self.states(server) for server in servers}
            raise Unreachable(f"after {self.patience:g} s they hold {states}, not {dict(expected)}") from problem

    def wait_until(self, condition: Callable[[], bool], otherwise: str, every: float = 0.1) -> None:
        """Wait until a condition is true; `otherwise` is the text of the error if it is not in time."""
        deadline = time.monotonic() + self.patience
        while not condition():
            if time.monotonic() > deadline:
                raise Unreachable(f"{otherwise} (waited {self.patience:g} s)")
            time.sleep(every)

    def log(self, server: str) -> list[dict[str, Any]]:
        """Return what a server's agent has logged, without lines of the Python interpreter."""
        lines = (self.home(server) / "agent.log").read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def metric(self, server: str, name: str) -> float:
        """Return the value of the metric `name` or `name{label="x"}`; 0 if it has not been counted yet."""
        for line in self.ask(server, "metrics")["text"].splitlines():
            if line.startswith(f"{name} "):
                return float(line.rpartition(" ")[2])
        return 0.0

    def rackwright(self, server: str, *arguments: str, typed: str = "") -> str:
        """Run the command line as if on that server; `typed` is its standard input."""
        command = [sys.executable, "-m", "rackwright", arguments[0], arguments[1], *arguments[2:]]
        command += ["--dir", str(self.home(server))]
        if self.network:
            command = self.network.command(server, command)
        done = subprocess.run(command, input=typed, capture_output=True, text=True, check=False, timeout=self.patience)
        if done.returncode:
            raise Unreachable(f"{' '.join(arguments[:2])} on {server} failed: {(done.stderr or done.stdout).strip()}")
        return done.stdout


def _runs(process: int) -> bool:
    """Return whether a process runs. A zombie does not: its parent may take long to collect it."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _flags(options: dict[str, str]) -> list[str]:
    return [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", value)]
