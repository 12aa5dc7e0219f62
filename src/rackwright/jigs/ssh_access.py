"""The jig of `ssh-access`: checks that the server reaches the node over SSH, and authorizes the keys of people there.

The role becomes ACTIVE only if the server could log in just now. The keys are marked in the node's file, so that those
which are no longer wanted can be removed, and no other keys are touched.
"""

import asyncio
import shlex
from collections.abc import Sequence
from typing import Self

from rackwright.domain.machines.ssh_login import MARK, ROOT, login_of, marked_lines
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import Jig
from rackwright.jigs.ports import FindTarget, InspectNode, IsMember, JigPorts
from rackwright.reach.run_log import Log
from rackwright.reach.ssh_connections import Connections, NotLetIn, NotTried, ShortAnswer, Target, Unreachable

COMING_UP_SECONDS = 15.0
"""A machine that has just reported its boot may not have started its SSH yet."""
PAUSE_SECONDS = 1.0
ASKING_SECONDS = 20.0
DONE = "done"

# Run as the user who logs in, who owns the file: root would follow a link that the user put there.
PUT_KEYS = """
set -eu
umask 077
cd
lines={lines}
file=.ssh/authorized_keys
has() {{ [ -f "$file" ] && grep -q ' {mark}$' "$file"; }}
if [ -n "$lines" ] || has; then
    mkdir -p .ssh
    {{
        [ ! -f "$file" ] || grep -v ' {mark}$' "$file" || [ $? -eq 1 ]
        [ -z "$lines" ] || printf '%s\\n' "$lines"
    }} >"$file.rackwright"
    mv "$file.rackwright" "$file"
fi
echo {done}
"""


def put_keys(keys: Sequence[str]) -> str:
    """Return the shell script that leaves just these keys marked as Rackwright's."""
    return PUT_KEYS.format(lines=shlex.quote("\n".join(marked_lines(keys))), mark=MARK, done=DONE)


class SshAccessJig(Jig):
    """Checks SSH access and authorizes keys.

    `inspect_node` reaches a node as the server's probe does, `targets` returns how its SSH is reached; `is_member`
    whether it is a living member of the mesh, and so can be reached through it. A connection is made when a run needs
    it; the script jig closes the connection to a node that was deleted.
    """

    kind = "ssh-access"

    def __init__(
        self,
        inspect_node: InspectNode,
        targets: FindTarget,
        connections: Connections,
        is_member: IsMember,
        coming_up: float = COMING_UP_SECONDS,
    ) -> None:
        self._inspect_node = inspect_node
        self._targets = targets
        self._connections = connections
        self._is_member = is_member
        self._coming_up = coming_up

    @classmethod
    def make(cls, ports: JigPorts) -> Self:
        return cls(ports.inspect_node, ports.targets, ports.connections, ports.is_member)

    async def run(self, run: Run, log: Log) -> Outcome:
        try:
            over_ssh = await self._reach(run)
            if over_ssh:
                await self._authorize_keys(run, log)
            log(f"The server reaches {run.node}.\n")
        except Unreachable as error:
            if not await self._is_member(run):
                return Outcome.failure(f"{run.node}: {error}")
            log(f"{run.node} is reached through the mesh, not over SSH: {error}\n")
        return Outcome.success()

    async def _reach(self, run: Run) -> bool:
        """Wait until the node is up, and return whether SSH was used to check it; raise Unreachable if it is not."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._coming_up
        while True:
            try:
                return await self._inspect_node(run.node_id)
            except (NotLetIn, NotTried):
                raise
            except Unreachable:
                if loop.time() + PAUSE_SECONDS > ends:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)

    async def _authorize_keys(self, run: Run, log: Log) -> None:
        """Add the keys of people on the node, and remove those that are no longer wanted."""
        target = await self._targets(run.node_id)
        if target.user != ROOT and (await self._ask(run, target, "id -u", as_root=True)).strip() != "0":
            raise NotLetIn(
                f"It lets the server in as {target.user}, who cannot become root with `sudo -n`. Allow it there"
                f" ({target.user} ALL=(ALL) NOPASSWD: ALL), or have the server log in as root:"
                f" rackwright attrib set node/{run.node} ssh-user root"
            )
        keys = login_of(run.input).authorized_keys
        output = await self._ask(run, target, put_keys(keys), as_root=False)
        if output.split()[-1:] != [DONE]:
            raise NotLetIn(
                f"The keys of people cannot be put into ~/.ssh/authorized_keys of {target.user}. Is its home there,"
                " and writable?"
            )
        log(f"{len(keys)} keys of people are authorized for {target.user}, beside what others put there.\n")

    async def _ask(self, run: Run, target: Target, script: str, *, as_root: bool) -> str:
        """Run a shell script on the node and return what it prints."""
        answer = ShortAnswer()
        command = f"exec sh -c {shlex.quote(script)}"
        try:
            async with self._connections.command(run.node_id, target, command, lambda: answer, as_root=as_root):
                async with asyncio.timeout(ASKING_SECONDS):
                    return await answer.text
        except TimeoutError:
            self._connections.drop(run.node_id)
            raise Unreachable(f"It did not answer over SSH within {ASKING_SECONDS:g} s.") from None
