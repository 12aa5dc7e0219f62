"""The log of a server on standard error.

Messages can contain text from strangers, so control characters in them are escaped.
"""

import logging

from rackwright.cli.output.terminal import visible


class HarmlessFormatter(logging.Formatter):
    """A formatter that keeps each message on one line, so that nobody can forge another, and escapes controls."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return super().formatMessage(record).replace("\n", "\\n")

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def log_to_stderr() -> None:
    """Write warnings and errors of this process to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(HarmlessFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
