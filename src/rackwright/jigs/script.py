"""The script jig: runs a role's scripts on the node, over SSH, or directly on the server's own host.

In `reach/`, `parcel` packs what is sent to the node, `conversation` reads what comes back, `ssh_connections` and
`local_host` carry both, and `node/` holds the wrapper that runs on the node.
"""

import asyncio
import contextlib
import secrets
import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol, Self

import asyncssh

from rackwright.domain.errors import RackwrightError
from rackwright.domain.runs import DEFAULT_DEADLINE, Outcome, Run
from rackwright.jigs.base import Jig, JigNode
from rackwright.jigs.ports import FindScripts, FindTarget, JigPorts
from rackwright.reach.attribute_lines import BadAttribute, parse_wall
from rackwright.reach.conversation import CLOSING_SECONDS, LAST_WORDS_SECONDS, Conversation, Throttle, WrapperVerdict
from rackwright.reach.local_host import start_local_wrapper
from rackwright.reach.parcel import BadParcel, NodeFolders, Parcel, pack
from rackwright.reach.run_log import Log
from rackwright.reach.ssh_connections import Connections, ShortAnswer, Target, Unreachable

ASKING_SECONDS = 20.0
STOPPING_SECONDS = 10.0
"""How long a node may take to end what runs on it. The wrapper sends SIGTERM and waits 3 s, then kills for 3 s."""


class WrapperLine(Protocol):
    """The channel to a running wrapper on the node: the jig writes to it, ends its input, or cuts it off."""

    def write(self, data: bytes) -> None: ...

    def write_eof(self) -> None: ...

    def abort(self) -> None: ...


class ScriptJig(Jig):
    """Runs scripts. A connection is made when a run needs it, and made anew if the node's SSH target changed.

    `scripts` returns the files of a run, `targets` how a node is reached; `deadline` is a run's, in seconds.

    Also in seconds: `closing` is how long to wait for the last output of a finished run, `stopping` for the end of a
    run that is being stopped, and `last_words` for the last output of a wrapper that has exited.
    """

    kind = "script"
    runs_files = True
    role_folder = "script/roles"
    role_folder_lacks = "no scripts: put some here, or give it the jig noop"

    def __init__(
        self,
        scripts: FindScripts,
        targets: FindTarget,
        connections: Connections,
        deadline: Callable[[Run], float] = lambda run: DEFAULT_DEADLINE,
        *,
        closing: float = CLOSING_SECONDS,
        stopping: float = STOPPING_SECONDS,
        last_words: float = LAST_WORDS_SECONDS,
    ) -> None:
        self._scripts = scripts
        self._targets = targets
        self._connections = connections
        self._deadline = deadline
        self._closing_seconds = closing
        self._stopping_seconds = stopping
        self._last_words_seconds = last_words
        self._stopping: set[asyncio.Task[bool]] = set()

    @classmethod
    def make(cls, ports: JigPorts) -> Self:
        return cls(ports.scripts, ports.targets, ports.connections, lambda run: run.deadline)

    async def node_delete(self, node: JigNode) -> None:
        self._connections.drop(node.id)

    async def close(self) -> None:
        await self._connections.close()

    async def run(self, run: Run, log: Log) -> Outcome:
        try:
            scripts = await self._scripts(run)
        except RackwrightError as error:
            return Outcome.failure(error.message)
        if not scripts:
            return Outcome.failure(
                f"Role {run.role} has no scripts, so nothing was run on {run.node}. Put some into "
                f"script/roles/{run.role} of its barclamp, or give it the jig noop, and import the barclamp again."
            )
        return await self.deliver(run, log, lambda folders, nonce: pack(run, scripts, folders, nonce))

    async def ask(self, run: Run, question: Callable[[NodeFolders], str]) -> str:
        """Return what a shell command prints on the node. It must change nothing: it is not fenced."""
        target = await self._targets(run.node_id)
        command = f"exec sh -c {shlex.quote(question(target.folders))}"
        if target.local:
            return await _ask_here(command)
        answer = ShortAnswer()
        async with self._connections.command(run.node_id, target, command, lambda: answer):
            async with asyncio.timeout(ASKING_SECONDS):
                return await answer.text

    async def deliver(self, run: Run, log: Log, packed: Callable[[NodeFolders, str], Parcel]) -> Outcome:
        """Send a parcel to the node of the run, follow its output, and return how it ended."""
        try:
            target = await self._targets(run.node_id)
            parcel = packed(target.folders, secrets.token_hex(8))
            talk = Conversation(parcel.nonce, log, self._last_words_seconds, run.mask)
            async with self._line(run, target, parcel, talk) as line:
                with contextlib.suppress(OSError):  # the conversation knows already that the line broke
                    line.write(parcel.archive)
                in_time = await self._follow(run, talk, line)
        except (Unreachable, BadParcel) as error:
            return Outcome.failure(f"{run.node}: {error}")
        except RackwrightError as error:
            return Outcome.failure(error.message)
        return _outcome(run, talk) if in_time else _late_outcome(run, talk, self._deadline(run))

    @asynccontextmanager
    async def _line(self, run: Run, target: Target, parcel: Parcel, talk: Conversation) -> AsyncIterator[WrapperLine]:
        if target.local:
            yield await start_local_wrapper(parcel.command, talk)
            return
        async with self._connections.command(
            run.node_id, target, parcel.command, lambda: _RemoteSession(talk)
        ) as channel:
            yield channel

    async def _follow(self, run: Run, talk: Conversation, line: WrapperLine) -> bool:
        """Wait until the run is over; return False if it had to be ended at its deadline."""
        try:
            async with asyncio.timeout(self._deadline(run)):
                await talk.wait_finished()
        except TimeoutError:
            await self._stop(talk, line)
            return False
        except asyncio.CancelledError:
            await self._stop(talk, line)
            raise
        if talk.lost is not None:
            await self._stop(talk, line)
        elif not await talk.wait_closed(self._closing_seconds):
            line.abort()
            talk.closed(None)
        return True

    async def _stop(self, talk: Conversation, line: WrapperLine) -> None:
        """End what runs on the node. This goes on to its end even if the waiting task is cancelled once more."""
        task = asyncio.create_task(_end(talk, line, self._stopping_seconds))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)
        await asyncio.shield(task)


async def _end(talk: Conversation, line: WrapperLine, seconds: float) -> bool:
    """Tell the wrapper to end the run, and return whether it confirmed that within `seconds`."""
    talk.stop_pacing()
    with contextlib.suppress(OSError):
        line.write_eof()
    ended = await talk.wait_closed(seconds)
    if not ended:
        line.abort()
        talk.closed(TimeoutError("the node did not say that it ended the run"))
    return ended


async def _ask_here(command: str) -> str:
    process = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    return output.decode(errors="replace")


class _RemoteSession(asyncssh.SSHClientSession[bytes]):
    """Feeds the conversation from an SSH channel."""

    def __init__(self, talk: Conversation) -> None:
        self._talk = talk
        self._throttle: Throttle | None = None

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self._throttle = Throttle(self._talk, chan.pause_reading, chan.resume_reading)

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        if datatype is None:
            self._talk.output.feed(data)
        else:
            self._talk.feed_control(data)
        assert self._throttle is not None
        self._throttle.check()

    def exit_status_received(self, status: int) -> None:
        self._talk.exited()

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self._talk.exited()

    def connection_lost(self, exc: Exception | None) -> None:
        self._talk.closed(exc)


def _outcome(run: Run, talk: Conversation) -> Outcome:
    """Return the outcome of a run that ended in time, from what the wrapper on the node answered."""
    if talk.lost is not None or talk.answer is None:
        return Outcome.failure(_with_tail(_lost_text(run, talk), talk))
    match talk.answer.verdict:
        case WrapperVerdict.REFUSED:
            return Outcome.failure(_refused_text(run, talk.answer.detail))
        case WrapperVerdict.BROKEN:
            return Outcome.failure(_with_tail(_broken_text(run, talk.answer.detail), talk))
        case WrapperVerdict.TAKEN:
            return Outcome.failure(
                _with_tail(f"A newer run took {run.node} over and ended this one in {_script_title(run, talk)}.", talk)
            )
        case WrapperVerdict.ENDED if talk.answer.detail != "0":
            return Outcome.failure(
                _with_tail(
                    f"{_capitalized(_script_title(run, talk))} failed on {run.node} with exit status "
                    f"{talk.answer.detail}.",
                    talk,
                )
            )
        case WrapperVerdict.ENDED:
            return _success_outcome(run, talk)


def _success_outcome(run: Run, talk: Conversation) -> Outcome:
    try:
        return Outcome.success(parse_wall(talk.written.decode(errors="replace"), run.input, run.mask.text))
    except BadAttribute as error:
        return Outcome.failure(f"The scripts of role {run.role} on {run.node} ended well, but: {error}")


def _late_outcome(run: Run, talk: Conversation, deadline: float) -> Outcome:
    late = f"{_capitalized(_script_title(run, talk))} on {run.node} did not end within its deadline of {deadline:g} s."
    ended = "It was ended there." if talk.answer is not None else "The node did not confirm that it was ended there."
    return Outcome.failure(_with_tail(f"{late} {ended}", talk))


def _lost_text(run: Run, talk: Conversation) -> str:
    why = str(talk.lost) or type(talk.lost).__name__
    during = f"while {_script_title(run, talk)} ran" if talk.started else "before a script was started"
    return f"The connection to {run.node} was lost {during} ({why}). The run is ended there when the node notices."


def _refused_text(run: Run, detail: str) -> str:
    reason, _, token = detail.partition(" ")
    if reason == "same":
        return f"{run.node} refused the run: it was given the same one before (token {token}). No script was started."
    return (
        f"{run.node} refused the run: its token {run.token} is older than {token}, which it saw already."
        " No script was started. If the server's database was restored from a backup, reboot the node."
    )


def _broken_text(run: Run, detail: str) -> str:
    match detail.partition(" "):
        case ("older", _, token):
            return f"An older run on {run.node} (token {token}) cannot be ended, so none was started. Reboot the node."
        case ("written", _, _):
            return f"The scripts of role {run.role} on {run.node} wrote more attributes than can be taken back."
        case ("claim", _, _):
            return f"{run.node} cannot record the run in its lock folder. Is that disk full or read-only?"
    return f"{run.node} could not unpack the scripts. It needs head, tar, awk and setsid, and room on its disk."


def _script_title(run: Run, talk: Conversation) -> str:
    return f"script {talk.script} of role {run.role}" if talk.script else f"role {run.role}"


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _with_tail(message: str, talk: Conversation) -> str:
    tail = talk.output.tail()
    return f"{message} Last lines:\n{tail}" if tail else message
