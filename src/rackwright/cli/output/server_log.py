"""What the server logs, on standard error. Strangers have a say in that, so it is written as harmlessly as all else."""

import logging

from rackwright.cli.output.terminal import visible


class HarmlessFormatter(logging.Formatter):
    """A message is one line, so that nobody makes up another."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return super().formatMessage(record).replace("\n", "\\n")

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def log_to_stderr() -> None:
    """Have warnings and errors of this process written to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(HarmlessFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
