"""`MaskedLog`, the log that a jig is given: it hides the secrets of the run in all that the jig writes."""

from collections.abc import Iterator
from contextlib import contextmanager

from rackwright.domain.masking import Mask, MaskedStream
from rackwright.reach.run_log import Log, is_full, wait_for_room


class MaskedLog:
    """A log that masks secrets and passes the text on to another log, and is full when that one is."""

    def __init__(self, mask: Mask, write: Log) -> None:
        self._stream = MaskedStream(mask)
        self._write = write

    def __call__(self, text: str) -> None:
        self._pass_on(self._stream.feed(text))

    @property
    def full(self) -> bool:
        return is_full(self._write)

    async def room(self) -> None:
        await wait_for_room(self._write)

    def end(self) -> None:
        """Pass on the text that was held back because it might have been the beginning of a secret."""
        self._pass_on(self._stream.end())

    def _pass_on(self, text: str) -> None:
        if text:
            self._write(text)


@contextmanager
def masked_log(mask: Mask, write: Log) -> Iterator[Log]:
    """Open a log that masks secrets; when the block ends, all that was written is passed on."""
    if not mask:
        yield write
        return
    log = MaskedLog(mask, write)
    try:
        yield log
    finally:
        log.end()
