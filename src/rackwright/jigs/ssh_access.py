"""The jig of `ssh-access`: reaches the node as every other jig will, and lets in whom people want.

It is ACTIVE only if the server was let in just now. Keys of people are marked where they lie, so that those which are
no longer wanted are taken away, and nobody else's are touched.
"""

import asyncio
import shlex
from collections.abc import Sequence
from typing import Self

from rackwright.domain.machines.ssh_login import MARK, ROOT, login_of, marked_lines
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import Jig
from rackwright.jigs.ports import IsMember, JigPorts, NodeLook, Targets
from rackwright.reach.run_log import Log
from rackwright.reach.ssh_connections import Connections, NotLetIn, NotTried, ShortAnswer, Target, Unreachable

COMING_UP_SECONDS = 15.0
"""A machine that has just said that it booted may not have started its SSH yet."""
PAUSE_SECONDS = 1.0
ASKING_SECONDS = 20.0
DONE = "done"

# As the user who logs in, who owns the file: root would follow a link that the user put there.
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
    """Return the shell script that leaves just these keys marked as ours."""
    return PUT_KEYS.format(lines=shlex.quote("\n".join(marked_lines(keys))), mark=MARK, done=DONE)


class SshAccessJig(Jig):
    """`look` reaches a node as the server's probe does, `targets` says how its SSH is reached; `is_member` whether it
    is a living member of the mesh, and so can be reached that way. A node is reached when something is to run on it;
    the script jig closes the connection to one that is gone."""

    kind = "ssh-access"

    def __init__(
        self,
        look: NodeLook,
        targets: Targets,
        connections: Connections,
        is_member: IsMember,
        coming_up: float = COMING_UP_SECONDS,
    ) -> None:
        self._look = look
        self._targets = targets
        self._connections = connections
        self._is_member = is_member
        self._coming_up = coming_up

    @classmethod
    def make(cls, ports: JigPorts) -> Self:
        return cls(ports.look_at_node, ports.targets, ports.connections, ports.is_member)

    async def run(self, run: Run, log: Log) -> Outcome:
        try:
            over_ssh = await self._reach(run)
            if over_ssh:
                await self._let_people_in(run, log)
            log(f"The server reaches {run.node}.\n")
        except Unreachable as error:
            if not await self._is_member(run):
                return Outcome.failure(f"{run.node}: {error}")
            log(f"{run.node} is reached through the mesh, not over SSH: {error}\n")
        return Outcome.success()

    async def _reach(self, run: Run) -> bool:
        loop = asyncio.get_running_loop()
        ends = loop.time() + self._coming_up
        while True:
            try:
                return await self._look(run.node_id)
            except (NotLetIn, NotTried):
                raise
            except Unreachable:
                if loop.time() + PAUSE_SECONDS > ends:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)

    async def _let_people_in(self, run: Run, log: Log) -> None:
        """Put the keys of people there, and take those away that are no longer wanted."""
        target = await self._targets(run.node_id)
        if target.user != ROOT and (await self._ask(run, target, "id -u", as_root=True)).strip() != "0":
            raise NotLetIn(
                f"It lets the server in as {target.user}, who cannot become root with `sudo -n`. Allow it there"
                f" ({target.user} ALL=(ALL) NOPASSWD: ALL), or have the server log in as root:"
                f" rackwright attrib set node/{run.node} ssh-user root"
            )
        keys = login_of(run.input).authorized_keys
        said = await self._ask(run, target, put_keys(keys), as_root=False)
        if said.split()[-1:] != [DONE]:
            raise NotLetIn(
                f"The keys of people cannot be put into ~/.ssh/authorized_keys of {target.user}. Is its home there,"
                " and writable?"
            )
        log(f"{len(keys)} keys of people are authorized for {target.user}, beside what others put there.\n")

    async def _ask(self, run: Run, target: Target, script: str, *, as_root: bool) -> str:
        answer = ShortAnswer()
        command = f"exec sh -c {shlex.quote(script)}"
        try:
            async with self._connections.command(run.node_id, target, command, lambda: answer, as_root=as_root):
                async with asyncio.timeout(ASKING_SECONDS):
                    return await answer.text
        except TimeoutError:
            self._connections.drop(run.node_id)
            raise Unreachable(f"It did not answer over SSH within {ASKING_SECONDS:g} s.") from None
