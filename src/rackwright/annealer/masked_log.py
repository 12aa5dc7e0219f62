"""The log that a jig is given: whatever it writes there, the secrets of its run are hidden before anybody sees it."""

from collections.abc import Iterator
from contextlib import contextmanager

from rackwright.domain.masking import Mask, MaskedStream
from rackwright.reach.run_log import Log, is_full, room_in


class MaskedLog:
    """A log in front of another one, as full as that is."""

    def __init__(self, mask: Mask, write: Log) -> None:
        self._stream = MaskedStream(mask)
        self._write = write

    def __call__(self, text: str) -> None:
        self._pass_on(self._stream.feed(text))

    @property
    def full(self) -> bool:
        return is_full(self._write)

    async def room(self) -> None:
        await room_in(self._write)

    def end(self) -> None:
        """Show what was held back because it might have been the beginning of a secret."""
        self._pass_on(self._stream.end())

    def _pass_on(self, text: str) -> None:
        if text:
            self._write(text)


@contextmanager
def masked_log(mask: Mask, write: Log) -> Iterator[Log]:
    """A log without the secrets; what it is given before the block ends is all there."""
    if not mask:
        yield write
        return
    log = MaskedLog(mask, write)
    try:
        yield log
    finally:
        log.end()
