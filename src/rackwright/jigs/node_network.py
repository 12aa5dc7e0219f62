"""The jig of `node-network`: has a living node's network changed, with a dead man's switch on the node.

The node keeps its old files and starts a clock. Only if the server reaches it again, over a new connection and to the
host key it knows, is the change final; else the node goes back by itself, and the run fails and says so. A server that
dies in between changes nothing of that: whoever takes the run over begins with what the node has then.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from rackwright.domain.installs.node_network.living import NodeNetwork, seconds_to_confirm
from rackwright.domain.runs import Answer, Outcome, Run
from rackwright.jigs.base import Jig
from rackwright.jigs.ports import FindTarget, JigPorts, RecordAddress, ResolveNodeNetwork
from rackwright.jigs.script import ScriptJig
from rackwright.reach.network_switch import (
    ARMED_KEY,
    SwitchAnswer,
    SwitchState,
    pack_switch,
    read_answer,
    switch_command,
)
from rackwright.reach.run_log import Log
from rackwright.reach.ssh_connections import Connections, NotLetIn, NotTried, ShortAnswer, Target, Unreachable

SETTLED_SECONDS = 3
"""How long a change must be in force before it is confirmed: what is about to break may answer once more."""
PAUSE_SECONDS = 1.0
ASKING_SECONDS = 20.0
RETURNING_SECONDS = 60.0
"""How long a node may take, after its clock ran out, until it answers on its old network again."""
UNCHANGED = "unchanged"


class BadNodeNetwork(Exception):
    """The network that is wanted cannot be had on this machine. Nothing was sent; the text says why."""


class _NotConfirmed(Exception):
    """The change is not final. The text says what became of the node."""


class NodeNetworkJig(Jig):
    """Changes networks. It keeps nothing of nodes."""

    kind = "node-network"

    def __init__(
        self,
        resolve: ResolveNodeNetwork,
        targets: FindTarget,
        connections: Connections,
        record_address: RecordAddress,
        *,
        settled: int = SETTLED_SECONDS,
        returning: float = RETURNING_SECONDS,
    ) -> None:
        self._resolve = resolve
        self._targets = targets
        self._connections = connections
        self._record_address = record_address
        self._settled = settled
        self._returning = returning

    @classmethod
    def make(cls, ports: JigPorts) -> Self:
        return cls(ports.resolve_node_network, ports.targets, ports.connections, ports.record_address)

    async def run(self, run: Run, log: Log) -> Outcome:
        try:
            network = await self._resolve(run)
            if not network.was_configured and not network.files:
                log("No network is wanted of it: every link asks DHCP, as it was installed.\n")
                return Outcome.success()
            change = _Change(run, network, await self._targets(run.node_id), self._connections, log)
            return await self._change(change)
        except (BadNodeNetwork, _NotConfirmed) as error:
            return Outcome.failure(str(error))
        except Unreachable as error:
            return Outcome.failure(f"{run.node}: {error}")

    async def _change(self, change: "_Change") -> Outcome:
        """Begin the change on the node, and see it through."""
        run, target = change.run, await change.reach()
        delivery = ScriptJig(_no_scripts, _fixed(target), self._connections, lambda run: run.deadline)
        outcome = await delivery.deliver(
            run,
            change.log,
            lambda folders, nonce: pack_switch(run, change.network.files, change.seconds, folders, nonce),
        )
        if outcome.answer is not Answer.SUCCEEDED:
            return outcome
        if outcome.wall.get(ARMED_KEY) != UNCHANGED:
            # Whatever answers over the old connection says nothing about the new network.
            self._connections.drop(run.node_id)
            change.log(f"The node goes back by itself unless it is reached again within {change.seconds} s.\n")
            confirmed_at = await self._confirm(change) or await self._wait_for_return(change)
            change.log(f"It was reached again at {confirmed_at}: the change is final.\n")
            target = replace(target, address=confirmed_at)
        if target.address != change.target.address:
            await self._record_address(run, target.address)
        return Outcome.success({"node_network": {"configured": True}} if change.network.files else {})

    async def _confirm(self, change: "_Change") -> str | None:
        """Return the address at which the node was told that the change is final; None: it was not, or went back."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + change.seconds
        while loop.time() < ends:
            reached = await change.ask_first()
            if reached is not None:
                target, status = reached
                answer: SwitchAnswer | None = status
                if status.state is SwitchState.APPLIED and status.seconds >= self._settled:
                    answer = await change.ask(target, "confirm")
                if answer is not None and answer.state is SwitchState.CONFIRMED:
                    return target.address
                if answer is not None and answer.state in (SwitchState.BACK, SwitchState.UNKNOWN):
                    return None
            await asyncio.sleep(PAUSE_SECONDS)
        return None

    async def _wait_for_return(self, change: "_Change") -> str:
        """Wait until the node is back on its old network, and raise _NotConfirmed with what became of the change.

        If it was told after all that the change is final, and only its answer was lost, return where it says so.
        """
        node, loop = change.run.node, asyncio.get_running_loop()
        ends = loop.time() + change.seconds + self._returning
        while loop.time() < ends:
            reached = await change.ask_first()
            if reached is not None:
                target, answer = reached
                if answer.state is SwitchState.CONFIRMED:
                    return target.address
                if answer.state is SwitchState.BACK:
                    raise _NotConfirmed(
                        f"The change of the network of {node} was not confirmed: {answer.reason}. {node} went back by "
                        f"itself, and answers on its old network at {target.address}.{change.describe_silence()}"
                    )
                if answer.state is SwitchState.UNKNOWN:
                    raise _NotConfirmed(f"Another change of the network of {node} took this one over.")
            await asyncio.sleep(PAUSE_SECONDS)
        tried = " and ".join(target.address for target in change.candidates)
        raise _NotConfirmed(
            f"{node} was not reached after its network changed, at {tried}, and not again after {change.seconds} s, "
            f"when it was to go back by itself. It does so at its next boot at the latest.{change.describe_silence()}"
        )


class _Change:
    """One change of the network of one node, and where the node may answer."""

    def __init__(self, run: Run, network: NodeNetwork, target: Target, connections: Connections, log: Log) -> None:
        if target.local:
            raise BadNodeNetwork("This is the server's own host: its network is not changed from here.")
        if target.host_key is None:
            raise NotTried(f"No host key of {run.node} is known, by which it could be told from others.")
        self.run = run
        self.network = network
        self.target = target
        self.log = log
        settings = run.input.get("provisioner")
        self.seconds = seconds_to_confirm(settings if isinstance(settings, dict) else {})
        addresses = dict.fromkeys((target.address, *network.addresses))
        self.candidates = [replace(target, address=address) for address in addresses]
        self._connections = connections
        self._silence: dict[str, str] = {}
        """Why the node could not be asked, by address, as of the last time."""

    async def reach(self) -> Target:
        """Return how the node is reached now.

        Where a server died in the middle of a change, the node may answer only once it went back.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + self.seconds + ASKING_SECONDS
        while True:
            reached = await self.ask_first()
            if reached is not None:
                return reached[0]
            if loop.time() > ends:
                raise Unreachable(f"It cannot be reached, so its network was not changed.{self.describe_silence()}")
            await asyncio.sleep(PAUSE_SECONDS)

    async def ask_first(self) -> tuple[Target, SwitchAnswer] | None:
        """Return how far the change is, from wherever the node answers first; None: nowhere. All places are asked."""
        asking = {asyncio.create_task(self.ask(target, "status")): target for target in self.candidates}
        waiting = set(asking)
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    answer = task.result()
                    if answer is not None:
                        return asking[task], answer
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        return None

    async def ask(self, target: Target, command: str) -> SwitchAnswer | None:
        """Return what the switch on the node says, asked over a new connection; None: it could not be asked."""
        connections = self._connections.apart(ASKING_SECONDS)
        answer = ShortAnswer()
        try:
            async with asyncio.timeout(ASKING_SECONDS):
                line = switch_command(command, self.run)
                async with connections.command(self.run.node_id, target, line, lambda: answer):
                    return read_answer(await answer.text)
        except NotLetIn as error:
            self._silence[target.address] = str(error)
        except (TimeoutError, Unreachable) as error:
            late = f"{target.address} did not answer within {ASKING_SECONDS:g} s."
            self._silence[target.address] = str(error) or late
        finally:
            await connections.close()
        return None

    def describe_silence(self) -> str:
        """Return why the node could not be asked where it was expected, after a blank; empty: it always could."""
        return "".join(f" {reason}" for reason in self._silence.values())


def _fixed(target: Target) -> FindTarget:
    async def find(node_id: int) -> Target:
        return target

    return find


async def _no_scripts(run: Run) -> Sequence[Path]:
    """Return no script: the switch is packed, not read from a barclamp."""
    return ()
