"""What comes from a node while scripts run there: their output, line by line, and what the wrapper says of them.

No connection lives here: `ssh` and `local` feed a conversation from theirs, and `script` judges what came of it.
"""

import asyncio
import codecs
from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from rackwright.jigs.base import Log

OUTPUT_LIMIT = 16 * 2**20
LINE_LIMIT = 16 * 2**10
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
TAIL_BYTES = 2 * TAIL_LINES * TAIL_LINE_LIMIT


class Output:
    """Turns bytes into lines for the log. Keeps the last ones; passes on no more than a log can bear."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""
        self._left = OUTPUT_LIMIT
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)

    def feed(self, received: bytes) -> None:
        if self._left <= 0:  # only the end is of interest, and a flood must not cost the server more than it has to
            received = received[-TAIL_BYTES:]
        *lines, self._rest = (self._rest + self._decoder.decode(received)).split("\n")
        for line in lines:
            self._line(line)
        while len(self._rest) > LINE_LIMIT:
            self._line(self._rest[:LINE_LIMIT])
            self._rest = self._rest[LINE_LIMIT:]

    def end(self) -> None:
        """A last line without an end is one too."""
        if self._rest:
            self._line(self._rest)
            self._rest = ""

    def tail(self) -> str:
        return "\n".join(self._tail)

    def _line(self, line: str) -> None:
        line = line.removesuffix("\r").replace("\0", "\N{SYMBOL FOR NULL}")
        self._tail.append(line if len(line) <= TAIL_LINE_LIMIT else f"{line[:TAIL_LINE_LIMIT]} ...")
        if self._left > 0:
            self._left -= len(line) + 1
            self._log(line)
            if self._left <= 0:
                self._log(f"[The output is longer than {OUTPUT_LIMIT // 2**20} MiB; the rest is not shown.]")


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

    def __init__(self, nonce: str, log: Log, last_words: float = LAST_WORDS_SECONDS) -> None:
        self.output = Output(log)
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
        self._lose(error or ConnectionError("the other side closed it"))
        self._closed.set()

    def exited(self) -> None:
        """The wrapper is gone; what it said last may still be under way. Its scripts may live on if it was killed."""
        if self._exited:
            return  # a node may say it as often as it likes
        self._exited = True
        killed = ConnectionError("the wrapper was killed")
        asyncio.get_running_loop().call_later(self._last_words_seconds, self._lose, killed)

    def _lose(self, error: Exception) -> None:
        if not self._finished.is_set():
            self.lost = error
            self._finished.set()

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
            self._finished.set()
        # The first answer is the cause; what the supervisor says after a refusal is only its echo.
        elif word in _VERDICTS and (self.answer is None or self.answer.verdict is Verdict.ENDED):
            self.answer = Answer(Verdict(word), detail[:LONGEST_NAME])
            if self.answer == Answer(Verdict.BROKEN, "unpack"):
                self._finished.set()
