"""The conversation with a node while scripts run there: their output, and the words of the wrapper that runs them.

No connection lives here: the SSH channel of the script jig and `local_host` feed the bytes in, and the script jig turns
the finished conversation into the outcome of its run.
"""

import asyncio
import codecs
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from rackwright.domain.masking import Mask, MaskedStream
from rackwright.reach.run_log import Log, is_full, wait_for_room_or

WRITTEN_LIMIT = 2 * 2**20
"""Bytes of attributes that scripts write. A wall has half as much at most; the other half is for escapes, and for
attributes that are written again."""
CLOSING_SECONDS = 2.0
"""The last output of a finished run must arrive within this; a daemon that keeps the output open is not waited for."""
LAST_WORDS_SECONDS = 30.0
"""The last words of a wrapper that exited must arrive within this, else it counts as killed. So long because nodes may
be slow."""
LONGEST_NAME = 100
"""Characters of a script's name, and of any other detail that the wrapper reports."""
TAIL_LINES = 20
TAIL_LINE_LIMIT = 400
TAIL_CHARACTERS = 2 * TAIL_LINES * TAIL_LINE_LIMIT


class Output:
    """The output of scripts: bytes are turned into text for the log, block by block, with secrets hidden.

    It keeps the last lines for messages about failures.
    """

    def __init__(self, log: Log, mask: Mask | None = None) -> None:
        self._log = log
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._masked = MaskedStream(mask or Mask())
        self._tail = ""
        self._last_character = ""

    def feed(self, received: bytes) -> None:
        text = self._decoder.decode(received)
        if "\r" in text:  # from a program that believes it writes to a terminal
            text = text.replace("\r\n", "\n")
        self._show(self._masked.feed(text))

    def end(self) -> None:
        """Write out what is left, and end the last line if it has no end."""
        self._show(self._decoder.decode(b"", final=True))
        self._show(self._masked.end())
        if self._last_character not in ("", "\n"):
            self._show("\n")

    def tail(self) -> str:
        """Return the last lines, long ones cut off.

        They are masked before they are cut, so no part of a secret is left.
        """
        lines = [line.removesuffix("\r") for line in self._tail.replace("\0", "\N{SYMBOL FOR NULL}").split("\n")]
        if len(self._tail) == TAIL_CHARACTERS and len(lines) > 1:
            del lines[0]  # half a line
        if lines[-1] == "":
            del lines[-1]
        shown = (line if len(line) <= TAIL_LINE_LIMIT else f"{line[:TAIL_LINE_LIMIT]} ..." for line in lines)
        return "\n".join(deque(shown, maxlen=TAIL_LINES))

    def _show(self, text: str) -> None:
        if text:
            self._tail = (self._tail + text[-TAIL_CHARACTERS:])[-TAIL_CHARACTERS:]
            self._last_character = text[-1]
            self._log(text)


class WrapperVerdict(StrEnum):
    """How the wrapper on the node judged its order. `node/lib/run` and `node/lib/supervise` write these words."""

    ENDED = "ended"
    TAKEN = "taken"
    REFUSED = "refused"
    BROKEN = "broken"


_VERDICTS = frozenset(verdict.value for verdict in WrapperVerdict)
"""Any other word in that position means nothing."""


@dataclass(frozen=True)
class WrapperAnswer:
    """The verdict of the wrapper, and the reason or exit status that comes with it."""

    verdict: WrapperVerdict
    detail: str


class Conversation:
    """The exchange of one run with its node: what was received so far, and whether more can come."""

    def __init__(self, nonce: str, log: Log, last_words: float = LAST_WORDS_SECONDS, mask: Mask | None = None) -> None:
        self.output = Output(log, mask)
        self._log = log
        self.started = False
        """Whether a script may have run."""
        self.script = ""
        """The name of the script that was started last."""
        self.answer: WrapperAnswer | None = None
        self.written = bytearray()
        """The attribute lines that the scripts wrote."""
        self.lost: Exception | None = None
        """Why the conversation ended too early, if it did."""
        self._last_words_seconds = last_words
        self._prefix = f"@{nonce} ".encode()
        self._partial_line = bytearray()
        self._said_over = False
        self._exited = False
        self._finished = asyncio.Event()
        self._closed = asyncio.Event()
        self._unpaced = asyncio.Event()
        """Set once the remaining output is little, or must be got rid of: it does not wait for room in the log."""

    @property
    def full(self) -> bool:
        """Whether nothing more is to be read from the node for now."""
        return not self._unpaced.is_set() and is_full(self._log)

    async def room(self) -> None:
        """Wait until the node can be read from again."""
        await wait_for_room_or(self._log, self._unpaced)

    def stop_pacing(self) -> None:
        """Read all that still comes, whether or not the log has room."""
        self._unpaced.set()

    async def wait_finished(self) -> None:
        """Wait until the wrapper said all, or will say no more."""
        await self._finished.wait()

    async def wait_closed(self, seconds: float) -> bool:
        """Wait until nothing more can come; return false if something still might after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        except TimeoutError:
            return False
        return True

    def feed_control(self, received: bytes) -> None:
        """Take bytes from the wrapper's own channel; a line without the wrapper's mark is a complaint of a shell."""
        self._partial_line += received
        if b"\n" in received:
            *lines, partial_line = bytes(self._partial_line).split(b"\n")
            self._partial_line = bytearray(partial_line)
        else:  # a line is parsed when it ends, not once for each piece
            lines = []
        complaints: list[bytes] = []
        for line in lines:
            if line.startswith(self._prefix):
                self._read_wrapper_line(line.removeprefix(self._prefix).decode(errors="replace"))
            elif self.answer is not None and not self._said_over:
                self._add_written(line)
            else:
                complaints.append(line)
        if complaints:
            self.output.feed(b"\n".join([*complaints, b""]))
        if len(self._partial_line) > WRITTEN_LIMIT:
            self._report_too_much()

    def closed(self, error: Exception | None) -> None:
        """Note that the connection is closed, so that nothing more can come."""
        self.output.end()
        self._unpaced.set()
        self._lose(error or ConnectionError("the other side closed it"))
        self._closed.set()

    def exited(self) -> None:
        """Note that the wrapper exited.

        Its last words may still be on their way; if it was killed, its scripts may live on.
        """
        if self._exited:
            return  # a node may report its exit as often as it likes
        self._exited = True
        self._await_last_words()

    def _await_last_words(self) -> None:
        asyncio.get_running_loop().call_later(self._last_words_seconds, self._no_last_words)

    def _no_last_words(self) -> None:
        if self.full:  # they may have come already, and wait until the log has room for the output before them
            self._await_last_words()
        else:
            self._lose(ConnectionError("the wrapper was killed"))

    def _lose(self, error: Exception) -> None:
        if not self._finished.is_set():
            self.lost = error
            self._finish()

    def _finish(self) -> None:
        self._finished.set()
        self._unpaced.set()

    def _add_written(self, line: bytes) -> None:
        if len(self.written) + len(line) < WRITTEN_LIMIT:
            self.written += line + b"\n"
        else:
            self._report_too_much()

    def _report_too_much(self) -> None:
        self._partial_line = bytearray()
        self.answer = WrapperAnswer(WrapperVerdict.BROKEN, "written")

    def _read_wrapper_line(self, words: str) -> None:
        word, _, detail = words.partition(" ")
        if word == "started":
            self.started = True
        elif word == "script":
            self.script = detail[:LONGEST_NAME]
        elif word == "over":
            self._said_over = True
            self._finish()
        # The first answer is the cause; what the supervisor says after a refusal is only its echo.
        elif word in _VERDICTS and (self.answer is None or self.answer.verdict is WrapperVerdict.ENDED):
            self.answer = WrapperAnswer(WrapperVerdict(word), detail[:LONGEST_NAME])
            if self.answer == WrapperAnswer(WrapperVerdict.BROKEN, "unpack"):
                self._finish()


class Throttle:
    """Stops reading from a node while the log of its run is full, so that only this node has to wait."""

    def __init__(self, conversation: Conversation, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._conversation = conversation
        self._pause = pause
        self._resume = resume
        self._waiting: asyncio.Task[None] | None = None

    def check(self) -> None:
        """Pause reading if the log is full. To be called whenever something was read."""
        if self._waiting is None and self._conversation.full:
            self._pause()
            self._waiting = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        await self._conversation.room()
        self._waiting = None
        self._resume()
