"""What comes from a node while scripts run there: their output, and what the wrapper says of them.

No connection lives here: `ssh` and `local` feed a conversation from theirs, and `script` judges what came of it.
"""

import asyncio
import codecs
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from rackwright.domain.masking import Mask, MaskedStream
from rackwright.reach.run_log import Log, is_full, room_or

WRITTEN_LIMIT = 2 * 2**20
"""Bytes. A wall has half as much at most; the rest is for what is escaped, or written again."""
CLOSING_SECONDS = 2.0
"""What is left of a finished run's output must come within this; a daemon that kept the output open waits in vain."""
LAST_WORDS_SECONDS = 30.0
"""What a wrapper that is gone said last must come within this, or it was killed. A slow node may take its time."""
LONGEST_NAME = 100
"""Of a script, and of what else the wrapper says in a word or two."""
TAIL_LINES = 20
TAIL_LINE_LIMIT = 400
TAIL_CHARACTERS = 2 * TAIL_LINES * TAIL_LINE_LIMIT


class Output:
    """Turns bytes into text for the log, in the blocks they come in, with secrets hidden. Keeps the last lines."""

    def __init__(self, log: Log, mask: Mask | None = None) -> None:
        self._log = log
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._masked = MaskedStream(mask or Mask())
        self._tail = ""
        self._last = ""

    def feed(self, received: bytes) -> None:
        text = self._decoder.decode(received)
        if "\r" in text:  # of a program that takes its output for a terminal
            text = text.replace("\r\n", "\n")
        self._show(self._masked.feed(text))

    def end(self) -> None:
        """A last line without an end is one too."""
        self._show(self._decoder.decode(b"", final=True))
        self._show(self._masked.end())
        if self._last not in ("", "\n"):
            self._show("\n")

    def tail(self) -> str:
        """The last lines, long ones cut off. They are masked before they are cut, so no part of a secret is left."""
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
            self._last = text[-1]
            self._log(text)


class Verdict(StrEnum):
    """What the wrapper says in the end. `node/lib/run` and `node/lib/supervise` say these words."""

    ENDED = "ended"
    TAKEN = "taken"
    REFUSED = "refused"
    BROKEN = "broken"


_VERDICTS = frozenset(verdict.value for verdict in Verdict)
"""What else a node says there means nothing."""


@dataclass(frozen=True)
class Answer:
    verdict: Verdict
    detail: str


class Conversation:
    """One run's exchange with its node."""

    def __init__(self, nonce: str, log: Log, last_words: float = LAST_WORDS_SECONDS, mask: Mask | None = None) -> None:
        self.output = Output(log, mask)
        self._log = log
        self.started = False
        """Whether a script may have run."""
        self.script = ""
        """The one that was started last."""
        self.answer: Answer | None = None
        self.written = bytearray()
        self.lost: Exception | None = None
        self._last_words_seconds = last_words
        self._mark = f"@{nonce} ".encode()
        self._rest = bytearray()
        self._over = False
        self._exited = False
        self._finished = asyncio.Event()
        self._closed = asyncio.Event()
        self._unpaced = asyncio.Event()
        """What still comes is little, or must be got rid of: it does not wait for room in the log."""

    @property
    def full(self) -> bool:
        """Whether the node is to be heard no further for now."""
        return not self._unpaced.is_set() and is_full(self._log)

    async def room(self) -> None:
        """Until the node can be heard again."""
        await room_or(self._log, self._unpaced)

    def stop_pacing(self) -> None:
        self._unpaced.set()

    async def wait_finished(self) -> None:
        """Until the wrapper said all, or will say no more."""
        await self._finished.wait()

    async def wait_closed(self, seconds: float) -> bool:
        """Until nothing more can come; false if something still might."""
        try:
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        except TimeoutError:
            return False
        return True

    def control(self, received: bytes) -> None:
        """What came on the wrapper's own channel; a line that is not the wrapper's is a complaint of a shell."""
        self._rest += received
        if b"\n" in received:
            *lines, rest = bytes(self._rest).split(b"\n")
            self._rest = bytearray(rest)
        else:  # a line that does not end is looked at when it does, not once for each piece
            lines = []
        complaints: list[bytes] = []
        for line in lines:
            if line.startswith(self._mark):
                self._said(line.removeprefix(self._mark).decode(errors="replace"))
            elif self.answer is not None and not self._over:
                self._keep(line)
            else:
                complaints.append(line)
        if complaints:
            self.output.feed(b"\n".join([*complaints, b""]))
        if len(self._rest) > WRITTEN_LIMIT:
            self._too_much()

    def closed(self, error: Exception | None) -> None:
        """Nothing more can come."""
        self.output.end()
        self._unpaced.set()
        self._lose(error or ConnectionError("the other side closed it"))
        self._closed.set()

    def exited(self) -> None:
        """The wrapper is gone; what it said last may still be under way. Its scripts may live on if it was killed."""
        if self._exited:
            return  # a node may say it as often as it likes
        self._exited = True
        self._await_last_words()

    def _await_last_words(self) -> None:
        asyncio.get_running_loop().call_later(self._last_words_seconds, self._no_last_words)

    def _no_last_words(self) -> None:
        if self.full:  # they came, perhaps, and wait until the log has room for what was said before
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

    def _keep(self, line: bytes) -> None:
        if len(self.written) + len(line) < WRITTEN_LIMIT:
            self.written += line + b"\n"
        else:
            self._too_much()

    def _too_much(self) -> None:
        self._rest = bytearray()
        self.answer = Answer(Verdict.BROKEN, "written")

    def _said(self, words: str) -> None:
        word, _, detail = words.partition(" ")
        if word == "started":
            self.started = True
        elif word == "script":
            self.script = detail[:LONGEST_NAME]
        elif word == "over":
            self._over = True
            self._finish()
        # The first answer is the cause; what the supervisor says after a refusal is only its echo.
        elif word in _VERDICTS and (self.answer is None or self.answer.verdict is Verdict.ENDED):
            self.answer = Answer(Verdict(word), detail[:LONGEST_NAME])
            if self.answer == Answer(Verdict.BROKEN, "unpack"):
                self._finish()


class Throttle:
    """Stops reading from a node while the log of its run is full, so that the node has to wait and nobody else."""

    def __init__(self, talk: Conversation, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._talk = talk
        self._pause = pause
        self._resume = resume
        self._waiting: asyncio.Task[None] | None = None

    def look(self) -> None:
        """To be called whenever something was read."""
        if self._waiting is None and self._talk.full:
            self._pause()
            self._waiting = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        await self._talk.room()
        self._waiting = None
        self._resume()
