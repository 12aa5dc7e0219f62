"""A script that prints far too much: its own node waits, and neither another node's run nor a request is slowed."""

import asyncio
from pathlib import Path

import asyncssh
from tests.support.machines.script_trial import trial
from tests.support.machines.ssh_node import ssh_node
from tests.support.rack import Rack
from tests.support.waiting import until

from rackwright.annealer.logs import MAX_SHARE_BYTES, RunLog, RunLogs
from rackwright.domain.runs import Answer
from rackwright.reach.ssh_connections import WINDOW
from rackwright.store.runs.run_logs import LOG_LIMIT, read_log

KEY = asyncssh.generate_private_key("ssh-ed25519")
FLOOD = "yes | head -c 50000000; echo all said"


class Counting:
    """A run's log that counts what is written to it, in all and in one turn of the event loop."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self.size = self.most_in_a_turn = self._in_turn = 0

    def __call__(self, text: str) -> None:
        if self._in_turn == 0:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._in_turn += len(text)
        self.size += len(text)
        self._log(text)

    def _next_turn(self) -> None:
        self.most_in_a_turn = max(self.most_in_a_turn, self._in_turn)
        self._in_turn = 0

    @property
    def full(self) -> bool:
        return self._log.full

    async def room(self) -> None:
        await self._log.room()


async def test_a_chatty_node_waits_and_another_one_does_not(rack: Rack, tmp_path: Path) -> None:
    """While nothing is written down, a flood stops at what its run may say; the other node's run goes its way. Then the
    flood goes on a share at a time, with turns of the event loop in between, and its log is cut where it says so."""
    chatty_run, quiet_run = await _two_runs(rack)
    logs = RunLogs(rack.store)
    with ssh_node(tmp_path / "chatty", KEY) as chatty_node, ssh_node(tmp_path / "quiet", KEY) as quiet_node:
        async with (
            trial(tmp_path / "a", KEY, chatty_node.target()) as chatty,
            trial(tmp_path / "b", KEY, quiet_node.target()) as quiet,
        ):
            chatty.scripts(flood=FLOOD)
            quiet.scripts(word="echo a word")
            with logs.writer(chatty_run) as log:
                flood = Counting(log)
                flooding = asyncio.create_task(chatty.run(log=flood))
                await until(lambda: flood.full, "the run has said its share")
                with logs.writer(quiet_run) as word:
                    assert (await quiet.run(log=word)).answer is Answer.SUCCEEDED
                assert any("head -c" in command for command, _ in chatty_node.processes()), "the node waits"
                assert not flooding.done()
                assert flood.size <= MAX_SHARE_BYTES + WINDOW
                writing = asyncio.create_task(logs.flush_for_ever(0.01))
                assert (await flooding).answer is Answer.SUCCEEDED
                writing.cancel()
        assert chatty_node.left_behind() == []
    await asyncio.gather(writing, return_exceptions=True)
    await logs.flush()
    assert flood.size == 50_000_000 + len("all said\n")
    assert flood.most_in_a_turn <= 2 * WINDOW
    async with rack.store.read() as session:
        shown = "".join(text for _, text in await read_log(session, chatty_run))
        assert [text for _, text in await read_log(session, quiet_run)] == ["a word\n"]
    assert len(shown) <= LOG_LIMIT
    assert shown.startswith("y\ny\n")
    assert "[The log is cut here, after 9.9 MiB;" in shown
    assert "[37.7 MiB of output are left out here.]" in shown
    assert shown.endswith("y\nall said\n")


async def _two_runs(rack: Rack) -> list[int]:
    await rack.import_text("name: two\nroles:\n  - {name: talks, jig: noop}\n")
    for name in ("n1", "n2"):
        await rack.node(name)
    await rack.anneal()
    await rack.deployment("web")
    await rack.deploy("web", ("n1", "talks"), ("n2", "talks"))
    return [run.id for run in await rack.claim()]
