"""Runs of states on five servers: with a server killed in the middle, with gates between servers, and with forgeries.

A target refuses forgeries although they are in the datastore.
"""

import contextlib
import json
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.mesh.fleet_datastore import UNHURRIED_STORE, leader, wait_complete, wires
from tests.support.mesh.netns import cluster, network
from tests.support.programs import make_ssh_key
from tests.support.waiting import PATIENCE, wait_until

from rackwright.lab.mesh_fleet import Fleet
from rackwright.mesh import control
from rackwright.mesh.errors import Unreachable
from rackwright.mesh.identity import trust
from rackwright.mesh.identity.sealing import seal, verify_seal_record
from rackwright.mesh.identity.server_identity import read_certificate
from rackwright.mesh.runs import run_model
from rackwright.mesh.runs.run_model import RunRequest, Targets, pack_tree, task_key
from rackwright.states import extensions

pytestmark = pytest.mark.chaos

SERVERS = ["s1", "s2", "s3", "s4", "s5"]
ALIVE = dict.fromkeys(SERVERS, "alive")
STATES = 50
MIDDLE = 25


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("operator", "stranger"):
        make_ssh_key(folder / name)
    return folder


@pytest.fixture(scope="module")
def formed(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Iterator[Fleet]:
    with network(SERVERS) as net, cluster(tmp_path_factory.mktemp("runs"), SERVERS, net, UNHURRIED_STORE) as fleet:
        wait_complete(fleet, "s1")
        fleet.rackwright("s1", "mesh", "trust", "add", "ops", str(keys / "operator.pub"))
        yield fleet


@pytest.fixture
def five(formed: Fleet) -> Iterator[Fleet]:
    formed.wait_agree(ALIVE)
    wait_complete(formed, "s1")
    yield formed
    formed.start_all()


class MeshRun:
    """`rackwright mesh run --json` on one server, and what it has told so far."""

    def __init__(self, fleet: Fleet, server: str, key: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "rackwright", "mesh", "run", *arguments, "--key", str(key), "--json"]
        command += ["--dir", str(fleet.home(server))]
        self.output = fleet.folder / f"run-{time.monotonic_ns()}.json"
        with self.output.open("w") as file:
            self.process = subprocess.Popen(
                wires(fleet).command(server, command), stdout=file, stderr=subprocess.PIPE, text=True
            )

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.output.read_text().splitlines() if line.endswith("}")]

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [line["event"] for line in self.lines() if line.get("event", {}).get("kind") == kind]

    def states(self, target: str) -> list[dict[str, Any]]:
        return [event["state"] for event in self.events("state") if event["target"] == target]

    def outcomes(self) -> dict[str, str]:
        return {event["target"]: event["state"] for event in self.events("task")}

    def wait(self) -> int:
        try:
            _, trouble = self.process.communicate(timeout=PATIENCE)
        finally:
            self.process.kill()
        assert "Traceback" not in trouble
        self.trouble = trouble
        return self.process.returncode


def fifty(folder: Path, world: Path) -> Path:
    """Fifty states that each leave a line in a file of their server; the one in the middle waits for `go`."""
    lines = []
    for number in range(STATES):
        note = f"echo {number} >> {world}/{{{{ node['id'] }}}}"
        hold = f"while [ ! -e {world}/go ]; do kill -0 $PPID || exit; sleep 0.1; done; " if number == MIDDLE else ""
        lines.append(f"state-{number:02d}:\n  cmd.run:\n    - name: '{hold}{note}'\n")
    folder.mkdir()
    (folder / "init.sls").write_text("\n".join(lines))
    return folder


def has_process(path: Path) -> bool:
    """Return whether a process has this path in its command."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if f"{path}/go".encode() in entry.read_bytes():
                return True
    return False


def lines_of(world: Path, server: str) -> list[str]:
    return (world / server).read_text().split() if (world / server).exists() else []


def test_a_run_is_cancelled_by_hand_and_nothing_more_of_it_is_begun(five: Fleet, keys: Path, tmp_path: Path) -> None:
    world = tmp_path / "world"
    world.mkdir()
    run = MeshRun(five, "s2", keys / "operator", str(fifty(tmp_path / "tree", world)), "--on", "s1,s4,s5")
    targets = ("s1", "s4", "s5")
    wait_until(
        lambda: all(len(run.states(target)) >= MIDDLE for target in targets), "all have come to the middle", every=0.2
    )
    id = run.lines()[0]["run"]
    output = five.rackwright("s3", "mesh", "cancel", id, "--yes", "--json")
    assert json.loads(output) == {"cancelled": list(targets)}
    assert run.wait() == 1
    assert run.outcomes() == dict.fromkeys(targets, "cancelled")
    wait_until(lambda: not has_process(world), "the servers have ended what they had begun", every=0.2)
    (world / "go").touch()
    assert "ended everywhere" in five.rackwright("s3", "mesh", "cancel", id, "--yes")
    with pytest.raises(Unreachable, match="there is no run nothing"):
        five.rackwright("s3", "mesh", "cancel", "nothing", "--yes")
    for target in targets:
        assert lines_of(world, target) == [str(number) for number in range(MIDDLE)]


@pytest.mark.parametrize("mode", ["ansible", "justdoit", "genius"])
def test_fifty_states_on_five_servers_with_one_killed_in_the_middle(
    five: Fleet, keys: Path, tmp_path: Path, mode: str
) -> None:
    world = tmp_path / "world"
    world.mkdir()
    tree = fifty(tmp_path / "tree", world)
    plain = sorted(set(SERVERS) - wait_complete(five, "s1"))
    victim = {"ansible": leader(five, "s1"), "justdoit": plain[0], "genius": plain[0]}[mode]
    asker = plain[1]
    run = MeshRun(five, asker, keys / "operator", str(tree), "--on", "s*", "--mode", mode)
    before = MIDDLE if mode == "ansible" else STATES - 1
    wait_until(
        lambda: all(len(run.states(server)) >= before for server in SERVERS), "all have come to the middle", every=0.2
    )
    five.kill(victim)
    (world / "go").touch()
    assert run.wait() == 1, "a server was lost, and that is said"
    expected = {server: "lost" if server == victim else "done" for server in SERVERS}
    assert run.outcomes() == expected
    for server in SERVERS:
        assert len(lines_of(world, server)) == len(set(lines_of(world, server))), "no state is run twice"
        if server != victim:
            assert sorted(map(int, lines_of(world, server))) == list(range(STATES))
            assert [state["outcome"] for state in run.states(server)] == ["changed"] * STATES
    left = lines_of(world, victim)
    five.start(victim)
    five.wait_agree(ALIVE)
    wait_until(
        lambda: five.ask(asker, "runs")["runs"][-1]["tasks"].get(victim) != "running",
        f"{victim} runs no more",
        every=0.2,
    )
    # The engine's last command was not killed with its server; apart from that nothing is done any more.
    assert set(left) <= set(lines_of(world, victim)) <= set(left) | {str(MIDDLE)}


def test_every_one_of_many_events_arrives(five: Fleet, keys: Path, tmp_path: Path) -> None:
    (tmp_path / "init.sls").write_text("".join(f"s{number}:\n  test.nop: []\n" for number in range(400)))
    run = MeshRun(five, "s5", keys / "operator", str(tmp_path), "--on", "s*", "--mode", "genius")
    assert run.wait() == 0, run.trouble or run.lines()
    for server in SERVERS:
        assert len({state["id"] for state in run.states(server)}) == len(run.states(server)) == 400


def test_servers_keep_each_others_pace_and_use_each_others_outputs(five: Fleet, keys: Path, tmp_path: Path) -> None:
    world = tmp_path / "world"
    world.mkdir()
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "init.sls").write_text(
        f"""
name:
  cmd.run:
    - name: echo {{{{ node['id'] }}}}
alone:
  cmd.run:
    - name: mkdir {world}/taken && sleep 0.2 && rmdir {world}/taken
    - serialize: 1
mark:
  cmd.run:
    - name: touch {world}/mark-{{{{ node['id'] }}}}
    - sync: true
all marked:
  cmd.run:
    - name: test $(ls {world}/mark-* | wc -l) = 5
    - require:
      - cmd: mark
neighbour:
  cmd.run:
    - name: echo ${{node:s3/name.stdout}} > {world}/neighbour-{{{{ node['id'] }}}}
"""
    )
    run = MeshRun(five, "s2", keys / "operator", str(tree), "--on", "s*", "--mode", "justdoit")
    assert run.wait() == 0, run.trouble or run.lines()
    assert run.outcomes() == dict.fromkeys(SERVERS, "done")
    assert {(world / f"neighbour-{server}").read_text() for server in SERVERS} == {"s3\n"}


def test_servers_that_would_wait_for_each_other_are_refused_before_anything_runs(
    five: Fleet, keys: Path, tmp_path: Path
) -> None:
    (tmp_path / "init.sls").write_text(
        """
a:
  cmd.run:
    - name: "echo ${node:s1/b.stdout}"
b:
  cmd.run:
    - name: "echo ${node:s2/a.stdout}"
"""
    )
    run = MeshRun(five, "s2", keys / "operator", str(tmp_path), "--on", "s1,s2")
    assert run.wait() == 1
    assert "wait for each other" in run.trouble
    run = MeshRun(five, "s2", keys / "operator", str(tmp_path), "--on", "s9")
    assert run.wait() == 1
    assert "s9 is not alive" in run.trouble


def test_targets_are_found_by_fact_and_a_cursor_goes_on_where_it_ended(five: Fleet, keys: Path, tmp_path: Path) -> None:
    (tmp_path / "init.sls").write_text("hello:\n  test.nop: []\n")
    run = MeshRun(five, "s4", keys / "operator", str(tmp_path), "--fact", "kernel=Linux", "--on", "s[12]")
    assert run.wait() == 0
    assert set(run.outcomes()) == {"s1", "s2"}
    name = run.lines()[0]["run"]

    def mine_of(server: str, *cursor: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in five.rackwright(server, "mesh", "events", *cursor).splitlines()]
        return [line for line in lines if line["event"].get("run") == name]

    # The end of the run is published after the last target has published its own end.
    wait_until(lambda: mine_of("s5")[-1]["event"]["kind"] == "run_finished", "the run is told to be over", every=1.0)
    mine = mine_of("s5")
    cut = mine[len(mine) // 2]["cursor"]
    assert mine_of("s3", "--cursor", str(cut)) == mine[len(mine) // 2 + 1 :]


# What a target refuses


@pytest.fixture
def rogue(five: Fleet) -> Callable[..., None]:
    """A member that writes into the datastore what it likes."""

    def act(**wish: Any) -> None:
        url = [f"https://{wires(five).address(server)}:2379" for server in SERVERS]
        program = [sys.executable, "-m", "tests.support.mesh.rogue_member", str(five.home("s5")), *url]
        root = Path(__file__).parents[3]
        subprocess.run(
            wires(five).command("s5", program),
            input=json.dumps(wish),
            text=True,
            check=True,
            timeout=PATIENCE,
            cwd=root,
        )

    return act


def forged(fleet: Fleet, name: str, tree: bytes, key: Path) -> tuple[RunRequest, dict[str, Any]]:
    now = int(time.time())
    digest = run_model.tree_digest(tree)
    cluster_name = str(fleet.ask("s1", "status")["ca"])
    request = RunRequest(name, cluster_name, now, now + 600, digest, Targets(("s2",)), ["init"])
    signature = trust.sign(request.dump().encode(), key)
    run = {"request": request.dump(), "signature": signature, "tree": b64encode(tree).decode(), "targets": ["s2"]}
    return request, run


def refusal(fleet: Fleet, name: str) -> str:
    final_event: dict[str, Any] = {}

    def ended() -> bool:
        for line in control.listen(fleet.home("s1"), "events"):
            event = line["event"]
            if event.get("run") == name and event["kind"] == "task" and event["state"] not in ("pending", "running"):
                final_event.update(event)
        return bool(final_event)

    wait_until(ended, f"{name} has ended", every=0.5)
    assert final_event["state"] == "refused", final_event
    return str(final_event["why"])


def test_what_no_trusted_operator_signed_is_refused_by_the_target_and_not_run(
    five: Fleet, keys: Path, tmp_path: Path, rogue: Callable[..., None]
) -> None:
    proof = tmp_path / "done"
    (tmp_path / "init.sls").write_text(f"harm:\n  cmd.run:\n    - name: touch {proof}\n")
    tree = pack_tree(tmp_path)

    _, unknown = forged(five, "unknown-key", tree, keys / "stranger")
    request, tampered = forged(five, "tampered-task", tree, keys / "operator")
    tampered["request"] = replace(request, sls=["other"]).dump()
    _, altered = forged(five, "altered-tree", tree, keys / "operator")
    (tmp_path / "init.sls").write_text(f"harm:\n  cmd.run:\n    - name: touch {proof} {proof}2\n")
    altered["tree"] = b64encode(pack_tree(tmp_path)).decode()
    request, elsewhere = forged(five, "not-for-s2", tree, keys / "operator")
    other = replace(request, targets=Targets(("s1",)))
    elsewhere |= {"request": other.dump(), "signature": trust.sign(other.dump().encode(), keys / "operator")}
    for run in (unknown, tampered, altered, elsewhere):
        rogue(run=run)
    assert "not trusted" in refusal(five, "unknown-key")
    assert "does not fit" in refusal(five, "tampered-task")
    assert "not those that were signed" in refusal(five, "altered-tree")
    assert "did not sign it for s2" in refusal(five, "not-for-s2")
    assert not proof.exists()
    own = MeshRun(five, "s1", keys / "stranger", str(tmp_path), "--on", "s2")
    assert own.wait() == 1
    assert "not trusted" in own.trouble


def test_a_run_that_was_run_is_not_run_again_when_its_task_is_put_back(
    five: Fleet, keys: Path, tmp_path: Path, rogue: Callable[..., None]
) -> None:
    proof = tmp_path / "lines"
    (tmp_path / "init.sls").write_text(f"once:\n  cmd.run:\n    - name: echo x >> {proof}\n")
    _, run = forged(five, "once-only", pack_tree(tmp_path), keys / "operator")
    rogue(run=run)
    wait_until(proof.exists, "it was run")
    wait_until(lambda: five.ask("s1", "runs")["runs"][-1]["tasks"] == {"s2": "done"}, "it has ended", every=0.2)
    base = f"{run_model.RUNS}once-only/"
    rogue(delete=[f"{base}request", task_key("once-only", "s2")], run=run)
    assert "run here before" in refusal(five, "once-only")
    assert proof.read_text() == "x\n"


MODULE = b"""
from rackwright.states.module import Check, Result, StateFunction


def _look(arguments, context):
    return Check({"greeting": "hello"}, "nobody has been greeted")


def _greet(arguments, check, context):
    return Result(True, check.changes, "hello")


FUNCTIONS = (StateFunction("hello", "Greets.", (), _look, _greet),)
"""


def test_a_module_of_the_datastore_is_used_if_it_is_signed_and_refused_if_it_was_altered(
    five: Fleet, keys: Path, tmp_path: Path, rogue: Callable[..., None]
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "init.sls").write_text("greet:\n  greeter.hello: []\n")
    (tmp_path / "greeter.py").write_bytes(MODULE)
    manifest = extensions.sign(MODULE, "greeter", "1.0", keys / "operator")
    (tmp_path / "greeter.py.manifest").write_text(manifest.dump())
    five.rackwright("s3", "mesh", "module", str(tmp_path / "greeter.py"))
    run = MeshRun(five, "s4", keys / "operator", str(tree), "--on", "s*")
    assert run.wait() == 0, run.trouble or run.lines()
    _, late = forged(five, "altered-module", pack_tree(tree), keys / "operator")
    rogue(keys={f"{run_model.MODULES}/greeter.py": b64encode(MODULE + b"\n# and more\n").decode()}, run=late)
    assert "altered after it was signed" in refusal(five, "altered-module")


def test_a_module_of_a_web_folder_is_fetched_and_verified_by_each_target(
    five: Fleet, keys: Path, tmp_path: Path
) -> None:
    tree, web = tmp_path / "tree", tmp_path / "web"
    tree.mkdir()
    web.mkdir()
    (tree / "init.sls").write_text("greet:\n  welcomer.hello: []\n")
    (web / "welcomer.py").write_bytes(MODULE)
    (web / "welcomer.py.manifest").write_text(extensions.sign(MODULE, "welcomer", "1.0", keys / "operator").dump())
    address = wires(five).address("s1")
    # The only one that listens there: the server has a network of its own.
    program = [sys.executable, "-u", "-m", "http.server", "--bind", address, "--directory", str(web), "8080"]
    with subprocess.Popen(
        wires(five).command("s1", program), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            assert "Serving" in server.stdout.readline()
            where = ["--on", "s*", "--modules", f"http://{address}:8080"]
            run = MeshRun(five, "s4", keys / "operator", str(tree), *where)
            assert run.wait() == 0, run.trouble or run.lines()
            assert [len(run.states(name)) for name in SERVERS] == [1] * 5
            (web / "welcomer.py").write_bytes(MODULE + b"\n# and more\n")
            run = MeshRun(five, "s4", keys / "operator", str(tree), *where)
            assert run.wait() == 1
            assert "altered after it was signed" in run.trouble
        finally:
            server.kill()


def files_containing(fleet: Fleet, text: bytes) -> list[str]:
    """Return the files of all servers that contain a text: those of their datastores, and all others."""
    paths = []
    for path in (path for server in SERVERS for path in fleet.home(server).rglob("*")):
        # A living server: some of its files are gone again, and some are sockets.
        with contextlib.suppress(OSError):
            if text in path.read_bytes():
                paths.append(str(path.relative_to(fleet.folder)))
    return paths


def test_a_secret_reaches_its_targets_and_lies_nowhere_in_the_datastore(
    five: Fleet, keys: Path, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "init.sls").write_text(
        f"show:\n  cmd.run:\n    - name: echo {{{{ password }}}} {{{{ colour }}}} > {tmp_path}/{{{{ node['id'] }}}}\n"
    )
    options = ["--secret", "password=wachtwoord-4711", "--var", "colour=heliotroop-4711"]
    run = MeshRun(five, "s4", keys / "operator", str(tree), "--on", "s1,s2", *options)
    assert run.wait() == 0, run.trouble or run.lines()
    assert {(tmp_path / name).read_text() for name in ("s1", "s2")} == {"wachtwoord-4711 heliotroop-4711\n"}
    assert files_containing(five, b"heliotroop-4711"), "a variable that is no secret is found, so a secret would be"
    assert not files_containing(five, b"wachtwoord-4711")


def test_a_sealed_secret_in_another_run_is_refused(
    five: Fleet, keys: Path, tmp_path: Path, rogue: Callable[..., None]
) -> None:
    """Even of a trusted operator: what was sealed for one run opens in no other."""
    (tmp_path / "init.sls").write_text("show:\n  cmd.run:\n    - name: echo {{ password }}\n")
    packed = pack_tree(tmp_path)
    ca = read_certificate((five.home("s1") / "ca.pem").read_bytes())
    published = five.ask("s1", "seals", targets={"names": ["s2"], "labels": {}, "facts": {}})["seals"]
    request, run = forged(five, "sealed-elsewhere", packed, keys / "operator")
    first = replace(request, id="another-run", secrets=["password"])
    seal_keys = {"s2": verify_seal_record("s2", published["s2"].encode(), ca)}
    sealed = seal({"password": "x"}, seal_keys, first.dump_without_sealed())
    replayed = replace(request, secrets=["password"], sealed=sealed)
    run |= {"request": replayed.dump(), "signature": trust.sign(replayed.dump().encode(), keys / "operator")}
    rogue(run=run)
    assert "sealed for another run" in refusal(five, "sealed-elsewhere")


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True, timeout=PATIENCE)


def wait_for_line(path: Path, line: str) -> None:
    wait_until(lambda: path.exists() and line in path.read_text().splitlines(), f"{line} was run", every=0.2)


def test_a_branch_that_moves_is_run_once_by_a_server_with_a_trusted_key(
    five: Fleet, keys: Path, tmp_path: Path
) -> None:
    repository, proof = tmp_path / "states", tmp_path / "proof"
    repository.mkdir()
    git(repository, "init", "-q", "-b", "main")
    write = f"commit:\n  cmd.run:\n    - name: echo {{}} >> {proof}\n"
    for server in SERVERS:
        for end in ("", ".pub"):
            (five.home(server) / f"run-key{end}").write_bytes((keys / f"operator{end}").read_bytes())
            (five.home(server) / f"run-key{end}").chmod(0o600)
    for name in ("one", "two"):
        (repository / "init.sls").write_text(write.format(name))
        git(repository, "add", "init.sls")
        git(repository, "commit", "-q", "-m", name)
        if name == "one":
            order = ["mesh", "repository", "add", "site", str(repository), "--on", "s4", "--seconds", "1"]
            five.rackwright("s2", *order, "--key", str(keys / "operator"))
        wait_for_line(proof, name)
    five.rackwright("s2", "mesh", "repository", "remove", "site", "--yes")
    assert proof.read_text() == "one\ntwo\n"


def test_the_clusters_configuration_counts_on_all_servers(five: Fleet) -> None:
    shown = five.rackwright("s4", "mesh", "config", "datastore.grace=50", "datastore.event_hours=1")
    assert "datastore.grace=50.0" in shown
    assert "datastore.event_hours=1.0" in five.rackwright("s2", "mesh", "config")
    with pytest.raises(Unreachable, match="must be 1, 3, 5 or 7"):
        five.rackwright("s2", "mesh", "config", "datastore.count=4")
    assert "datastore.grace=\n" in five.rackwright("s1", "mesh", "config", "datastore.grace=", "datastore.event_hours=")
