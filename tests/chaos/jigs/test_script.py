"""The script jig when parts fail: nodes, wires, the wrapper, and servers that do not know that they lost their run.

That two runs are never on a node at once is shown by a journal on the node: each run writes its token into it for as
long as it lives, so in a correct journal no token comes after a higher one.
"""

import asyncio
import io
import os
import random
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import asyncssh
import psutil
import pytest
from tests.support.machines.script_trial import Trial, trial
from tests.support.machines.ssh_node import SshNode, ssh_node
from tests.support.waiting import until

from rackwright.domain.runs import Answer, Outcome, Run
from rackwright.jigs.base import JigNode
from rackwright.jigs.script import STOPPING_SECONDS
from rackwright.reach.conversation import LAST_WORDS_SECONDS
from rackwright.reach.parcel import NodeFolders, pack_files

pytestmark = pytest.mark.chaos
KEY = asyncssh.generate_private_key("ssh-ed25519")
ENDLESS = "echo begun; while :; do echo $RACKWRIGHT_RUN >>/run/journal; sleep 0.01; done"
STUBBORN = f"trap '' TERM; {ENDLESS}"
"""It ignores SIGTERM."""
RESTLESS = """
trap '' TERM
if [ -z "$1" ]; then
    cp "$0" /run/restless
    for i in 1 2 3 4 5 6 7 8 9; do sh /run/restless again & done
    echo begun
    exec sleep 1000
fi
sh /run/restless again &
"""
"""Each of its processes starts the next and ends, sooner than anyone can look."""
BRIEF = "i=0; while [ $i -lt 20 ]; do echo $RACKWRIGHT_RUN >>/run/journal; sleep 0.01; i=$((i + 1)); done"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SshNode]:
    with ssh_node(tmp_path / "node", KEY) as started:
        yield started


@pytest.fixture
async def server(node: SshNode, tmp_path: Path) -> AsyncIterator[Trial]:
    async with trial(tmp_path / "scripts", KEY, node.target()) as server:
        yield server


async def begin(server: Trial, token: int, script: str) -> asyncio.Task[Outcome]:
    """Start a run and wait until its script has begun."""
    server.scripts(a=script)
    running = asyncio.create_task(server.run(token=token))
    await until(lambda: running.done() or "begun" in server.log, "the script has begun")
    assert not running.done(), running.result().error
    return running


def journal(node: SshNode) -> list[int]:
    return [int(line) for line in node.path("/run/journal").read_text().split()]


def wrapper_processes(node: SshNode, word: str) -> list[psutil.Process]:
    return [process for command, process in node.processes() if f"lib/{word}" in command]


async def supervisor_and_guard(node: SshNode) -> tuple[psutil.Process, psutil.Process]:
    """The guard is the supervisor's child, of the same program, and may be there a little later than the script."""
    await until(lambda: len(wrapper_processes(node, "supervise")) == 2, "there are a supervisor and a guard")
    first, second = wrapper_processes(node, "supervise")
    return (first, second) if second.ppid() == first.pid else (second, first)


def has_members(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def listen_to(process: psutil.Process) -> io.FileIO:
    """Open the standard error of a process for reading, so that it has a reader for as long as the file is open."""
    return io.FileIO(os.open(f"/proc/{process.pid}/fd/2", os.O_RDONLY | os.O_NONBLOCK))


async def nothing_is_left(node: SshNode) -> None:
    await until(lambda: node.left_behind() == [], lambda: f"nothing is left on the node: {node.left_behind()}")


async def test_a_node_that_reboots_in_the_middle_fails_the_run_with_its_last_lines(
    node: SshNode, server: Trial
) -> None:
    running = await begin(server, 1, "echo begun; echo rebooting now; sleep 1000")
    await until(lambda: "rebooting now" in server.log, "the script says that it reboots")
    node.shut_down()
    outcome = await running
    assert outcome.answer is Answer.FAILED
    assert outcome.error.startswith("The connection to n1.example was lost while script a.sh of role test ran")
    assert outcome.error.endswith("Last lines:\nbegun\nrebooting now")
    node.boot()
    server.scripts(a="echo up again")
    assert (await server.run(token=2)).error == ""


async def test_a_cut_wire_fails_the_run_and_a_newer_one_ends_what_still_runs(node: SshNode, tmp_path: Path) -> None:
    """The node cannot know that nobody listens, so the run goes on there until a newer one comes."""
    # Noticed after 16 s, and not sooner: a node that is slow is not cut off.
    async with trial(tmp_path / "scripts", KEY, node.target(), keepalive=4) as server:
        running = await begin(server, 1, ENDLESS)
        node.cut_wire()
        outcome = await running
        assert "was lost while script a.sh of role test ran" in outcome.error
        node.mend_wire()
        assert wrapper_processes(node, "run") != []
        server.scripts(a=BRIEF)
        assert (await server.run(token=2)).error == ""
        assert journal(node) == sorted(journal(node))
        assert journal(node).count(2) == 20
        await nothing_is_left(node)


@pytest.mark.parametrize("script", [ENDLESS, STUBBORN, RESTLESS], ids=["polite", "stubborn", "restless"])
async def test_a_server_that_dies_ends_its_run_on_the_node(node: SshNode, server: Trial, script: str) -> None:
    """Its kernel closes the connection, and that is all the node needs to know."""
    running = await begin(server, 1, script)
    [runner] = wrapper_processes(node, "run")
    await server.jig.node_delete(JigNode(1, "n1.example"))
    assert "was lost" in (await running).error
    await nothing_is_left(node)
    await until(lambda: not has_members(runner.pid), "the restless are gone, too, whom a look can miss")


async def test_a_wrapper_that_speaks_to_a_dead_server_still_cleans_up(node: SshNode, server: Trial) -> None:
    """sshd closes the wrapper's input first and its output a little later: on a busy node, much later."""
    running = await begin(server, 1, STUBBORN)
    supervisor, _ = await supervisor_and_guard(node)
    with listen_to(supervisor) as output:
        await server.jig.node_delete(JigNode(1, "n1.example"))
        assert "was lost" in (await running).error
        # The shell's word when its child was ended by a signal.
        await until(lambda: b"Terminated" in (output.read() or b""), "the supervisor speaks of its runner's end")
    await nothing_is_left(node)


async def test_a_supervisor_that_hangs_keeps_nothing_from_being_ended(node: SshNode, server: Trial) -> None:
    running = await begin(server, 1, STUBBORN)
    supervisor, _ = await supervisor_and_guard(node)
    supervisor.suspend()
    await server.jig.node_delete(JigNode(1, "n1.example"))
    assert "was lost" in (await running).error
    alone = [" ".join(supervisor.cmdline())]
    await until(lambda: node.left_behind() == alone, lambda: f"only the supervisor is left: {node.left_behind()}")
    supervisor.resume()
    await nothing_is_left(node)


async def test_a_newer_run_ends_the_older_one_first(node: SshNode, server: Trial, tmp_path: Path) -> None:
    running = await begin(server, 1, STUBBORN)
    async with trial(tmp_path / "newer", KEY, node.target()) as newer:
        newer.scripts(a=BRIEF)
        assert (await newer.run(token=2)).error == ""
    assert (await running).error.startswith("A newer run took n1.example over and ended this one in script a.sh")
    assert journal(node) == sorted(journal(node))
    assert set(journal(node)) == {1, 2}
    assert journal(node).count(2) == 20
    assert node.left_behind() == []


async def test_the_same_token_is_refused_while_its_run_goes_on(node: SshNode, server: Trial, tmp_path: Path) -> None:
    running = await begin(server, 5, "echo begun; until [ -e /run/go ]; do sleep 0.05; done; echo done")
    async with trial(tmp_path / "other", KEY, node.target()) as other:
        other.scripts(a="echo never")
        assert "it was given the same one before" in (await other.run(token=5)).error
        assert "is older than 5" in (await other.run(token=4)).error
    node.path("/run/go").touch()
    assert (await running).error == ""
    assert server.log == ["begun", "done"]


async def test_a_run_that_is_still_being_unpacked_when_a_newer_one_comes_steps_back(
    node: SshNode, server: Trial
) -> None:
    """What lies there of it was taken for left behind, and the run failed for want of its files."""
    older = Run(1, 1, 1, "n1.example", "test", "script", "script", {}, deadline=3600.0)
    parcel = pack_files(older, [("a.sh", BRIEF.encode())], {}, NodeFolders(), "0123456789abcdef")
    half = len(parcel.archive) // 2
    async with (
        asyncssh.connect(node.address, username="root", client_keys=[KEY], known_hosts=None, config=None) as connection,
        connection.create_process(parcel.command, encoding=None) as process,
    ):
        process.stdin.write(parcel.archive[:half])
        await until(lambda: any(node.path(NodeFolders().work).glob("run-1-*")), "it is being unpacked")
        server.scripts(a=BRIEF)
        assert (await server.run(token=2)).error == ""
        process.stdin.write(parcel.archive[half:])
        said = (await process.stderr.read()).decode()
    assert said.startswith(f"@{parcel.nonce} refused older 2\n"), said
    await nothing_is_left(node)


@pytest.mark.parametrize("round", range(3))
async def test_of_runs_started_at_once_only_one_is_ever_on_the_node(node: SshNode, tmp_path: Path, round: int) -> None:
    tokens = list(range(1, 7))
    random.Random(round).shuffle(tokens)
    async with AsyncExitStack() as stack:
        servers = {
            token: await stack.enter_async_context(trial(tmp_path / str(token), KEY, node.target())) for token in tokens
        }
        for server in servers.values():
            server.scripts(a=BRIEF)
        outcomes = dict(
            zip(tokens, await asyncio.gather(*(servers[token].run(token=token) for token in tokens)), strict=True)
        )
    assert outcomes[6].error == ""
    assert journal(node) == sorted(journal(node))
    for token, outcome in outcomes.items():
        if outcome.answer is Answer.SUCCEEDED:
            assert journal(node).count(token) == 20, "it ended well without having done its work"
        else:
            # It may have written its last line and been ended just before it could say so.
            assert "newer run" in outcome.error or "is older than" in outcome.error
    await nothing_is_left(node)


@pytest.mark.parametrize("words", [["run"], ["supervise"], ["supervise", "guard", "run"]], ids="-".join)
async def test_a_killed_wrapper_fails_the_run_and_the_next_one_finds_a_clean_node(
    node: SshNode, tmp_path: Path, words: list[str]
) -> None:
    """Without supervisor and guard nobody is left who could end the script: the next run does."""
    # If all of them are killed nobody says anything more, however long one listens.
    last_words, stopping = (3.0, 3.0) if "guard" in words else (LAST_WORDS_SECONDS, STOPPING_SECONDS)
    async with trial(tmp_path / "scripts", KEY, node.target(), stopping=stopping, last_words=last_words) as server:
        running = await begin(server, 1, ENDLESS)
        supervisor, guard = await supervisor_and_guard(node)
        [runner] = wrapper_processes(node, "run")
        processes = {"supervise": supervisor, "guard": guard, "run": runner}
        for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first, so that none of them sees another die
            for word in words:
                processes[word].send_signal(number)
        assert (await running).answer is Answer.FAILED
        server.scripts(a=BRIEF)
        assert (await server.run(token=2)).error == ""
        assert journal(node) == sorted(journal(node))
        assert journal(node).count(2) == 20
        await nothing_is_left(node)


async def test_a_power_cut_leaves_a_folder_that_the_next_run_removes(node: SshNode, server: Trial) -> None:
    left = "/var/lib/rackwright/runs/run-1-0123456789abcdef"
    server.scripts(a=f"mkdir -p {left}/lib; echo 999999 1 another-boot >/run/rackwright/claim-3")
    assert (await server.run(token=2)).error == ""
    assert node.path(left).exists()
    server.scripts(a="echo ran")
    assert (await server.run(token=4)).error == ""
    assert not node.path(left).exists()
    assert [path.name for path in node.path("/run/rackwright").iterdir()] == ["claim-4"]
