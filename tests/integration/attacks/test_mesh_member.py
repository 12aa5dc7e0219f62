"""What a member of the mesh that was taken over tries on the others, with its own, valid certificate.

It may gossip, and it may read and write the whole datastore. It must not end another agent or a part of it, whatever it
sends or writes; nor run anything on another server, pass an output, the end of a task or a place at a gate off as
another server's, or play back what that one once said. What it can still do is in docs/mesh-datastore.md.
"""

import asyncio
import json
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.mesh.fleet_datastore import UNHURRIED_STORE, wait_complete, wires
from tests.support.mesh.netns import cluster, network
from tests.support.mesh.stranger import as_member, message
from tests.support.programs import make_ssh_key
from tests.support.waiting import PATIENCE, wait_until

from rackwright.lab.mesh_fleet import Fleet
from rackwright.mesh.address import parse_address
from rackwright.mesh.datastore.datastore_gossip import Hint, Part
from rackwright.mesh.identity.sealing import SEALS
from rackwright.mesh.joining import join
from rackwright.mesh.membership.messages import Alive, Gossip, Ping
from rackwright.mesh.membership.metadata import Section, pack_sections
from rackwright.mesh.membership.swim import MemberRecord
from rackwright.mesh.runs import run_model
from rackwright.mesh.runs.event_batches import pack as pack_events
from rackwright.mesh.runs.repositories import ORDERS, SEEN
from rackwright.mesh.runs.run_end import FENCES
from rackwright.mesh.runs.run_model import (
    Task,
    TaskState,
    gate_prefix,
    run_events,
    state_key,
    task_key,
    task_pointer_prefix,
)
from rackwright.mesh.transport.link import Kind

PAIR = ["s1", "s2"]


def refusals(fleet: Fleet, server: str, reason: str) -> float:
    return fleet.metric(server, f'rackwright_mesh_refused_total{{reason="{reason}"}}')


def wait_for_refusals(fleet: Fleet, server: str, reason: str, count: float) -> None:
    """Until a server has refused so much for this reason."""
    wait_until(lambda: refusals(fleet, server, reason) >= count, f"{server} has seen and refused it", every=0.2)


class Unharmed:
    """What must hold around an attack: every agent is the same process, no part of it failed, and it goes on."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    def __enter__(self) -> None:
        self.before = {server: self.fleet.pid(server) for server in self.fleet.servers}

    def __exit__(self, kind: type[BaseException] | None, problem: object, trace: object) -> None:
        if kind is not None:
            return
        probes = {server: self.probes(server) for server in self.before}
        for server, process in self.before.items():
            self.wait_for_probes(server, probes[server] + 3)
            assert self.fleet.pid(server) == process
            assert self.fleet.ask(server, "status")["failing_parts"] == {}
            assert not [line for line in self.fleet.log(server) if line["event"] == "part_failed"]

    def wait_for_probes(self, server: str, count: float) -> None:
        wait_until(lambda: self.probes(server) > count, f"{server} goes on", every=0.2)

    def probes(self, server: str) -> float:
        return self.fleet.metric(server, "rackwright_mesh_swim_probes_total")


# Messages


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with cluster(tmp_path_factory.mktemp("pair"), PAIR) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def mallory(pair: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one who was let in, and turns out to be rogue."""
    folder = tmp_path_factory.mktemp("mallory")
    token = join.read_token(pair.ask("s1", "token", name="mallory")["token"])
    here = parse_address("127.0.0.1:11111")
    asyncio.run(join.join(folder, join.JoinOptions(token.name, token.address, token.ca, here, here, token)))
    return folder


async def test_an_address_that_is_none_ends_nobody(pair: Fleet, mallory: Path) -> None:
    """It says to hold the datastore at port 99999: whoever believed that could not even write the address down."""
    hint = Hint(Part.VOTER, True, 1, 2379, 2380).pack()
    me = MemberRecord("mallory", "127.0.0.1:11111", 1, 1, metadata=pack_sections({Section.DATASTORE: hint}))
    sent = message("mallory", 1, Gossip(), Alive(me)).replace(b"127.0.0.1:11111", b"127.0.0.1:99999")
    with Unharmed(pair):
        for server in PAIR:
            before = refusals(pair, server, "bad_message")
            stream = await as_member(mallory, parse_address(pair.address(server)))
            stream.send(sent)
            wait_for_refusals(pair, server, "bad_message", before + 1)
            stream.close()


async def test_junk_in_frames_of_every_kind_ends_nobody(pair: Fleet, mallory: Path) -> None:
    deep = b"QUJD\n" + b"[" * 50_000
    junk = [b"", b"\0", b"\xff" * 100, b"{}", deep, message("mallory", 5, Ping(1), session=9)[:-1]]
    with Unharmed(pair):
        for server in PAIR:
            for kind in (*Kind, 99):
                stream = await as_member(mallory, parse_address(pair.address(server)))
                for payload in junk:
                    stream.send(payload, kind)
                stream.writer.write(bytes([kind]) + b"\xff\xff\xff")
                assert await stream.ended()


# The datastore


SERVERS = ["s1", "s2", "s3"]
ROGUE = "s3"


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An operator's."""
    return make_ssh_key(tmp_path_factory.mktemp("keys") / "operator")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, key: Path) -> Iterator[Fleet]:
    with network(SERVERS) as net, cluster(tmp_path_factory.mktemp("three"), SERVERS, net, UNHURRIED_STORE) as fleet:
        wait_complete(fleet, "s1")
        fleet.rackwright("s1", "mesh", "trust", "add", "ops", f"{key}.pub")
        for server in SERVERS:
            (fleet.home(server) / "run-key").write_bytes(key.read_bytes())
            (fleet.home(server) / "run-key").chmod(0o600)
        yield fleet


@pytest.fixture
def rogue(three: Fleet) -> Callable[..., None]:
    """Writes into the datastore what it likes, as s3."""

    def act(**wish: Any) -> None:
        urls = [f"https://{wires(three).address(server)}:2379" for server in SERVERS]
        program = [sys.executable, "-m", "tests.support.mesh.rogue_member", str(three.home(ROGUE)), *urls]
        command = wires(three).command(ROGUE, program)
        root = Path(__file__).parents[3]
        subprocess.run(command, input=json.dumps(wish), text=True, check=True, timeout=PATIENCE, cwd=root)

    return act


class OperatorsRun:
    """`rackwright mesh run --json` on s1, and what it has told so far."""

    def __init__(self, fleet: Fleet, key: Path, tree: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "rackwright", "mesh", "run", str(tree), *arguments, "--json"]
        command += ["--key", str(key), "--dir", str(fleet.home("s1"))]
        self.output = tree.parent / f"told-{time.monotonic_ns()}"
        with self.output.open("w") as file:
            self.process = subprocess.Popen(wires(fleet).command("s1", command), stdout=file, stderr=file)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.output.read_text().splitlines() if line.startswith("{")]

    def name(self) -> str:
        wait_until(self.lines, lambda: f"the run begins; it said {self.output.read_text()}", every=0.2)
        return str(self.lines()[0]["run"])

    def ends(self) -> dict[str, dict[str, Any]]:
        """The last word on each target's task."""
        events = (line.get("event", {}) for line in self.lines())
        return {event["target"]: event for event in events if event.get("kind") == "task"}

    def wait(self) -> int:
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.process.kill()


def tree_of(folder: Path, text: str) -> Path:
    tree = folder / "tree"
    tree.mkdir()
    (tree / "init.sls").write_text(text)
    return tree


HANDED_ON = """
{{% if node['id'] == 's2' %}}
make:
  cmd.run:
    - name: while [ ! -e {world}/go ]; do kill -0 $PPID || exit; sleep 0.1; done; cat {world}/value
{{% else %}}
use:
  cmd.run:
    - name: printf %s ${{node:s2/make.stdout}} > {world}/used
{{% endif %}}
"""


def handed_on(folder: Path, value: str) -> tuple[Path, Path]:
    """States in which s1 uses what s2 puts out once there is a file `go`; and the folder with that file."""
    world = folder / "world"
    world.mkdir()
    (world / "value").write_text(value)
    return tree_of(folder, HANDED_ON.format(world=world)), world


def state_event(run: str, stdout: str) -> bytes:
    """What s2 would say of its state `make`."""
    state = {"id": "make", "name": "x", "function": "cmd.run", "result": True, "changes": {"stdout": stdout}}
    event = {"kind": "state", "target": "s2", "run": run, "state": state, "outputs": {}, "gate": None}
    return pack_events([json.dumps(event).encode()])


def b64(content: bytes) -> str:
    return b64encode(content).decode()


def test_an_output_that_is_a_command_is_not_run_by_who_uses_it(three: Fleet, key: Path, tmp_path: Path) -> None:
    evil = f"x; touch {tmp_path}/proof; $(touch {tmp_path}/proof)"
    tree, world = handed_on(tmp_path, evil)
    (world / "go").touch()
    run = OperatorsRun(three, key, tree, "--on", "s1,s2")
    assert run.wait() == 0, run.output.read_text()
    assert (world / "used").read_text() == evil
    assert not (tmp_path / "proof").exists()


def test_an_output_forged_in_another_servers_name_or_played_back_is_not_used(
    three: Fleet, key: Path, tmp_path: Path, rogue: Callable[..., None]
) -> None:
    tree, world = handed_on(tmp_path, "old")
    (world / "go").touch()
    earlier = OperatorsRun(three, key, tree, "--on", "s1,s2")
    assert earlier.wait() == 0, earlier.output.read_text()
    for left in ("go", "used"):
        (world / left).unlink()
    (world / "value").write_text("true")
    run = OperatorsRun(three, key, tree, "--on", "s1,s2")
    name = run.name()
    before = refusals(three, "s1", "bad_statement")
    forged = state_event(name, "made-up-by-s3")
    rogue(
        keys={state_key(name, "s2", 90): b64(forged)},
        sign={state_key(name, "s2", 91): b64(forged), state_key(name, ROGUE, 1): b64(forged)},
        copy={state_key(earlier.name(), "s2", 1): state_key(name, "s2", 92)},
    )
    # Each of the four twice: by the state that waits for the output, and by who shows the run.
    wait_for_refusals(three, "s1", "bad_statement", before + 8)
    assert not (world / "used").exists()
    (world / "go").touch()
    assert run.wait() == 0, run.output.read_text()
    assert (world / "used").read_text() == "true"
    assert "made-up-by-s3" not in run.output.read_text()


def test_a_success_that_the_server_itself_did_not_tell_is_not_shown_as_one(
    three: Fleet, key: Path, tmp_path: Path, rogue: Callable[..., None]
) -> None:
    tree, _ = handed_on(tmp_path, "never put out")
    run = OperatorsRun(three, key, tree, "--on", "s2")
    name = run.name()
    wait_until(lambda: run.ends().get("s2", {}).get("state") == "running", "s2 runs it", every=0.2)
    done = Task(name, "s2", TaskState.DONE, summary={"changed": 1}, seconds=1.0)
    rogue(keys={task_key(name, "s2"): b64(done.dump())})
    assert run.wait() == 1
    assert run.ends()["s2"]["state"] == "lost"
    assert "was not written by s2" in run.ends()["s2"]["why"]


def test_nobody_is_waved_through_a_gate_in_another_servers_name(
    three: Fleet, key: Path, tmp_path: Path, rogue: Callable[..., None]
) -> None:
    """`sync` holds s1 until s2 has the state behind it; s3 says that s2 has."""
    world = tmp_path / "world"
    world.mkdir()
    held = f"while [ ! -e {world}/go ]; do kill -0 $PPID || exit; sleep 0.1; done"
    wait = f"{{% if node['id'] == 's2' %}}{held}{{% else %}}date{{% endif %}}"
    text = f"both:\n  cmd.run:\n    - name: {wait}\n    - sync: true\n"
    text += f"after:\n  cmd.run:\n    - name: touch {world}/after-{{{{ node['id'] }}}}\n"
    text += "    - require:\n      - cmd: both\n"
    run = OperatorsRun(three, key, tree_of(tmp_path, text), "--on", "s1,s2")
    name, gate = run.name(), run_model.gate_name("cmd.run", "both", 0)
    statement = f"{gate_prefix(name, gate)}done/s2"
    before = refusals(three, "s1", "bad_statement")
    rogue(sign={statement: b64(b"s2")})
    # Twice: by the state that waits there, and by who shows the run.
    wait_for_refusals(three, "s1", "bad_statement", before + 2)
    assert not (world / "after-s1").exists()
    (world / "go").touch()
    assert run.wait() == 0, run.output.read_text()
    assert (world / "after-s1").exists()


ODD = "\udcff\udcfe"
"""Bytes in a key that are no text."""
DEEP = b"[" * 100_000
WRONG = b'{"state": [], "targets": {"x": 1}, "created": {}, "token": {}, "request": 7, "datastore.grace": 1e999}'
ENDLESS = WRONG.replace(b"1e999", b"9" * 400).replace(b"{}", b"9" * 400)
"""Numbers that no float can hold: Python fails where one is compared with a float, or asked whether it is finite."""
JUNK = [b"", b"\xff\xfe", DEEP, b"[]", b"{}", WRONG, ENDLESS, b"\x01junk", b"\x02junk\n", b"9" * 100_000]


def keys_read() -> list[str]:
    """Every place of the datastore that an agent reads, and some beside them."""
    single = ["/rackwright/config", f"{run_model.TRUST}/signers", "/rackwright/repositories-watcher"]
    below = [ORDERS, SEEN, FENCES, SEALS, run_model.FACTS, run_model.OPEN, run_model.CLUSTER_EVENTS]
    for run in ("junk", ODD):
        single += [f"{run_model.RUNS}{run}/about", f"{run_model.RUNS}{run}/request", f"{run_model.RUNS}{run}/tree/0000"]
        single += [f"{run_events(run)}{suffix}" for suffix in ("state/s1/1", "odd", "gate/g/done/s1", f"task/{ODD}")]
        single += [f"{prefix}{run}" for prefix in below]
        single += [key for server in PAIR for key in (task_key(run, server), f"{task_pointer_prefix(server)}{run}")]
    return [*single, f"{run_model.MODULES}/junk.py", f"{run_model.MODULES}/junk.py.manifest"]


def test_junk_everywhere_in_the_datastore_ends_no_part_of_any_agent_and_runs_go_on(
    three: Fleet, key: Path, tmp_path: Path, rogue: Callable[..., None]
) -> None:
    with Unharmed(three):
        for junk in JUNK:
            before = {server: refusals(three, server, "unreadable") for server in PAIR}
            rogue(keys=dict.fromkeys(keys_read(), b64(junk)))
            for server, count in before.items():
                wait_for_refusals(three, server, "unreadable", count + 1)
        assert "junk" not in three.rackwright("s1", "mesh", "runs", "--json")
        tree = tree_of(tmp_path, "well:\n  test.nop: []\n")
        (tmp_path / "secrets").write_text("x: secret\n")
        run = OperatorsRun(three, key, tree, "--on", "s1,s2", "--secret-file", str(tmp_path / "secrets"))
        assert run.wait() == 0, run.output.read_text()
        three.rackwright("s1", "mesh", "events")
        three.rackwright("s1", "mesh", "config", "datastore.grace=41")
        three.rackwright("s2", "mesh", "repository", "list")
