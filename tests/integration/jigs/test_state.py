"""The state jig against a real sshd: variables in, outputs back, the engine sent once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from tests.support.machines.script_trial import Trial, trial
from tests.support.machines.ssh_node import SshNode, ssh_node

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.runs import Answer, Outcome, Run
from rackwright.jigs.state import StateJig, engine
from rackwright.mesh.client import MeshClient
from rackwright.reach.mesh_states import MeshStateRunner
from rackwright.reach.parcel import Parcel, pack_files

TREE = """
say:
  cmd.run:
    - name: echo {{ greeting }}
write:
  file.managed:
    - name: {{ folder }}/said
    - contents: ${say.stdout}
"""


@pytest.fixture
def key() -> asyncssh.SSHKey:
    return asyncssh.generate_private_key("ssh-ed25519")


@pytest.fixture
def node(tmp_path: Path, key: asyncssh.SSHKey) -> Iterator[SshNode]:
    with ssh_node(tmp_path / "node", key) as made:
        yield made


class States:
    def __init__(self, server: Trial, tree: Path, mesh: MeshStateRunner | None = None) -> None:
        self.server = server
        self.tree = tree
        self.jig = StateJig(self._tree, server.jig, mesh)
        self.number = 0

    async def _tree(self, run: Run) -> Path | None:
        return self.tree if self.tree.is_dir() else None

    async def run(self, attributes: JsonObject, secrets: frozenset[str] = frozenset()) -> Outcome:
        self.number += 1
        run = Run(self.number, 1, 1, "n1.example", "web", "state", "state", attributes, 60.0, secrets=secrets)
        return await self.jig.run(run, self.server.write)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "init.sls").write_text(TREE)
    return folder


async def test_attributes_are_variables_and_outputs_become_the_wall(
    tmp_path: Path, key: asyncssh.SSHKey, node: SshNode, tree: Path
) -> None:
    async with trial(tmp_path / "scripts", key, node.target()) as server:
        outcome = await States(server, tree).run({"greeting": "hello", "folder": str(tmp_path)})
        assert outcome.answer is Answer.SUCCEEDED, outcome.error
        states = outcome.wall["states"]
        assert isinstance(states, dict)
        outputs = states["say"]
        assert isinstance(outputs, dict)
        assert outputs["stdout"] == "hello"
        assert (tmp_path / "said").read_text().strip() == "hello"
        assert any(line.startswith("changed: say") for line in server.log)


async def test_the_engine_is_sent_once_and_a_spoilt_copy_is_replaced(
    tmp_path: Path, key: asyncssh.SSHKey, node: SshNode, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []

    def record_and_pack(*arguments: Any) -> Parcel:
        sent.append(len(arguments[2]))
        return pack_files(*arguments)

    monkeypatch.setattr("rackwright.jigs.state.pack_files", record_and_pack)
    async with trial(tmp_path / "scripts", key, node.target()) as server:
        states = States(server, tree)
        values: JsonObject = {"greeting": "hello", "folder": str(tmp_path)}
        for _ in range(2):
            assert (await states.run(values)).answer is Answer.SUCCEEDED
        assert sent == [2, 1]
        server.scripts(spoil=f"echo x >>/var/lib/rackwright/runs/engine/{engine().name}")
        states.number += 1
        assert (await server.run(token=states.number)).answer is Answer.SUCCEEDED
        assert (await states.run(values)).answer is Answer.SUCCEEDED
        assert sent == [2, 1, 2]


async def test_a_failing_state_fails_the_run_and_names_it(
    tmp_path: Path, key: asyncssh.SSHKey, node: SshNode, tree: Path
) -> None:
    (tree / "init.sls").write_text("broken:\n  cmd.run:\n    - name: exit 3\n")
    async with trial(tmp_path / "scripts", key, node.target()) as server:
        outcome = await States(server, tree).run({})
    assert outcome.answer is Answer.FAILED
    assert "broken" in outcome.error


async def test_a_bad_tree_is_refused_before_anything_is_touched(
    tmp_path: Path, key: asyncssh.SSHKey, node: SshNode, tree: Path
) -> None:
    (tree / "init.sls").write_text("one:\n  cmd.run:\n    - name: touch /x\n    - require:\n      - cmd: two\n")
    async with trial(tmp_path / "scripts", key, node.target()) as server:
        outcome = await States(server, tree).run({})
    assert outcome.answer is Answer.FAILED
    assert "Refused" in outcome.error
    assert "init.sls" in outcome.error


async def test_a_secret_variable_is_masked_in_log_and_wall(
    tmp_path: Path, key: asyncssh.SSHKey, node: SshNode, tree: Path
) -> None:
    async with trial(tmp_path / "scripts", key, node.target()) as server:
        values: JsonObject = {"greeting": "open-sesame", "folder": str(tmp_path)}
        outcome = await States(server, tree).run(values, secrets=frozenset({"greeting"}))
        assert outcome.answer is Answer.SUCCEEDED, outcome.error
        assert "sesame" not in str(outcome.wall)
        assert "sesame" not in "\n".join(server.log)


def a_mesh_without_agent(folder: Path, state: str = "alive") -> MeshStateRunner:
    """The node is a member of it, but nobody on this host speaks for it."""

    async def membership(node_id: int) -> JsonObject | None:
        return {"member": "s1", "state": state}

    async def scope() -> str:
        return "test"

    return MeshStateRunner(MeshClient(folder), folder / "key", membership, scope)


async def test_a_member_that_the_mesh_cannot_reach_is_reached_over_ssh_and_the_log_says_why(
    tmp_path: Path, key: asyncssh.SSHKey, node: SshNode, tree: Path
) -> None:
    async with trial(tmp_path / "scripts", key, node.target()) as server:
        states = States(server, tree, a_mesh_without_agent(tmp_path))
        outcome = await states.run({"greeting": "hello", "folder": str(tmp_path)})
        assert outcome.answer is Answer.SUCCEEDED, outcome.error
        assert any("Going over SSH, not through the mesh: no agent answers" in line for line in server.log)


@pytest.mark.parametrize(
    ("state", "via", "secrets"),
    [("alive", "ssh", frozenset()), ("alive", "auto", frozenset({"greeting"})), ("dead", "auto", frozenset())],
)
async def test_what_is_told_to_or_is_secret_or_is_for_a_dead_member_does_not_try_the_mesh(
    tmp_path: Path, key: asyncssh.SSHKey, node: SshNode, tree: Path, state: str, via: str, secrets: frozenset[str]
) -> None:
    async with trial(tmp_path / "scripts", key, node.target()) as server:
        states = States(server, tree, a_mesh_without_agent(tmp_path, state))
        outcome = await states.run({"greeting": "hello", "folder": str(tmp_path), "state": {"via": via}}, secrets)
        assert outcome.answer is Answer.SUCCEEDED, outcome.error
        assert not any("mesh" in line for line in server.log)


@pytest.mark.parametrize(
    ("state", "via", "why"),
    [
        ("alive", "mesh", "no agent answers"),
        ("left", "mesh", "it is left in the mesh, so nothing was begun"),
        ("alive", "pigeon", "it can be auto, ssh, mesh"),
    ],
)
async def test_where_the_role_insists_on_the_mesh_nothing_goes_over_ssh(
    tmp_path: Path, key: asyncssh.SSHKey, node: SshNode, tree: Path, state: str, via: str, why: str
) -> None:
    async with trial(tmp_path / "scripts", key, node.target()) as server:
        states = States(server, tree, a_mesh_without_agent(tmp_path, state))
        outcome = await states.run({"greeting": "hello", "folder": str(tmp_path), "state": {"via": via}})
    assert outcome.answer is Answer.FAILED
    assert why in outcome.error
    assert not (tmp_path / "said").exists()


async def test_a_server_that_knows_of_no_mesh_says_how_to_tell_it(
    tmp_path: Path, key: asyncssh.SSHKey, node: SshNode, tree: Path
) -> None:
    async with trial(tmp_path / "scripts", key, node.target()) as server:
        outcome = await States(server, tree).run({"state": {"via": "mesh"}})
    assert outcome.answer is Answer.FAILED
    assert "--mesh-folder" in outcome.error
