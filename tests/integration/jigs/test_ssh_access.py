"""The jig of ssh-access against a real sshd: nodes that are reached or not, ports, users, and authorized keys."""

from collections.abc import Iterator

import asyncssh
import pytest
from tests.support.machines.ssh_node import SshNode, ssh_node

from rackwright.domain.catalogue import Json
from rackwright.domain.machines.ssh_login import MARK
from rackwright.domain.runs import Answer, Outcome, Run
from rackwright.hammers.base import HammerFailed, HammerNode
from rackwright.hammers.ssh import SshHammer
from rackwright.jigs.ssh_access import SshAccessJig
from rackwright.reach.ssh_connections import Connections, HostKeyWatch, NotLetIn, Target, Unreachable

KEY = asyncssh.generate_private_key("ssh-ed25519")
OTHERS = "ssh-ed25519 AAAAothers by hand\n"
ADA, GRACE = "ssh-ed25519 AAAAada ada's laptop", "ssh-ed25519 AAAAgrace"


@pytest.fixture(scope="module", params=["debian", "busybox"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshNode]:
    folder = tmp_path_factory.mktemp("ssh") / "node"
    with ssh_node(folder, KEY, busybox=request.param == "busybox", port=2222, own_home=True) as started:
        yield started


class Trial:
    """One node, one target, one run after another."""

    def __init__(self, target: Target, member: bool = False) -> None:
        self.target = target
        self.log: list[str] = []
        self.refused: list[str] = []
        self._member = member

    async def run(self, *keys: str) -> Outcome:
        connections = Connections(KEY, HostKeyWatch(self._seen, self._differs))
        hammer = SshHammer(connections, self._targets)

        async def look(node_id: int) -> bool:
            try:
                await hammer.look(HammerNode(node_id, "n1.example", {}))
            except HammerFailed as error:
                raise (NotLetIn if error.answers else Unreachable)(str(error)) from error
            return True

        jig = SshAccessJig(look, self._targets, connections, self._is_member, coming_up=0)
        authorized: list[Json] = [*keys]
        try:
            return await jig.run(_run({"ssh": {"authorized_keys": authorized}}), self.log.append)
        finally:
            await connections.close()

    async def _targets(self, node_id: int) -> Target:
        return self.target

    async def _seen(self, node_id: int, key: str) -> None:
        raise AssertionError("no key is trusted at first sight here")

    async def _differs(self, node_id: int, key: str) -> None:
        self.refused.append(key)

    async def _is_member(self, run: Run) -> bool:
        return self._member


def _run(input: dict[str, Json]) -> Run:
    return Run(1, 1, 1, "n1.example", "ssh-access", "ssh-access", "ssh-access", input, 60.0)


def failed(outcome: Outcome, *words: str) -> None:
    assert outcome.answer is Answer.FAILED
    for word in words:
        assert word in outcome.error, outcome.error


async def test_a_machine_that_lets_the_server_in_is_reached_at_its_port(node: SshNode) -> None:
    outcome = await Trial(node.target()).run()
    assert outcome.answer is Answer.SUCCEEDED, outcome.error


async def test_one_that_is_not_there_is_an_error_that_says_so(node: SshNode) -> None:
    nowhere = Target(node.address, 22, host_key=node.host_key, node="n1.example")
    failed(await Trial(nowhere).run(), "port 22 cannot be reached over SSH", "runs sshd")


async def test_one_that_does_not_know_the_servers_key_is_an_error_that_says_what_to_do(node: SshNode) -> None:
    node.authorize(asyncssh.generate_private_key("ssh-ed25519"))
    try:
        failed(await Trial(node.target()).run(), "does not let the server in as root", "rackwright key show")
    finally:
        node.authorize(KEY)


async def test_another_host_key_is_an_error_that_names_the_command_to_pin_it(node: SshNode) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
    trial = Trial(node.target(host_key=other))
    shown = asyncssh.import_public_key(node.host_key).get_fingerprint()
    failed(await trial.run(), "is pinned", f"rackwright node host-key n1.example --pin {shown}")
    assert [" ".join(key.split()[:2]) for key in trial.refused] == [" ".join(node.host_key.split()[:2])]


async def test_a_member_of_the_mesh_is_reached_that_way_and_the_log_says_so(node: SshNode) -> None:
    trial = Trial(Target(node.address, 22, host_key=node.host_key), member=True)
    assert (await trial.run()).answer is Answer.SUCCEEDED
    assert any("through the mesh, not over SSH" in line for line in trial.log)


async def test_keys_of_people_come_and_go_and_nobody_elses_are_touched(node: SshNode) -> None:
    file = node.path("/root/.ssh/authorized_keys")
    trial = Trial(node.target())
    assert (await trial.run()).answer is Answer.SUCCEEDED
    assert not file.exists(), "nothing to put there: nothing is touched"
    file.parent.mkdir(mode=0o700)
    file.write_text(OTHERS)
    await trial.run(ADA, GRACE)
    assert file.read_text() == f"{OTHERS}{ADA} {MARK}\n{GRACE} {MARK}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    await trial.run(GRACE)
    assert file.read_text() == f"{OTHERS}{GRACE} {MARK}\n"
    await trial.run()
    assert file.read_text() == OTHERS


@pytest.mark.parametrize("node", ["debian"], indirect=True)
async def test_a_user_who_cannot_become_root_is_an_error_that_says_what_to_allow(node: SshNode) -> None:
    target = Target(node.address, node.port, "mortal", node.host_key, node="n1.example")
    failed(await Trial(target).run(), "as mortal", "mortal ALL=(ALL) NOPASSWD: ALL", "ssh-user root")
