"""Runs of states on five servers: with a server killed in the middle, and with gates between servers."""

import contextlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.mesh.mesh_run import ALIVE, SERVERS, MeshRun
from tests.support.mesh.fleet_datastore import leader, wait_complete
from tests.support.waiting import PATIENCE, wait_until

from rackwright.lab.mesh_fleet import Fleet
from rackwright.mesh.errors import Unreachable

pytestmark = pytest.mark.chaos

STATES = 50
MIDDLE = 25


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
