"""The API client of the command line: a call that fails ends the command with a sentence and an exit code.

How the API is called is in `rackwright.client`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rackwright.cli.output.exits import BY_STATUS, Exit, fail
from rackwright.cli.profile import NoServer, Profile, current_profile
from rackwright.client.blocking import ApiClient
from rackwright.client.calls import ANSWER_SECONDS, Result, Steps
from rackwright.client.errors import ApiProblem, BadAddress, NoAnswer
from rackwright.client.events import StreamEvent


class Client(ApiClient):
    """The API client with the token of the person who runs the command."""

    def __init__(self, profile: Profile | None = None, timeout: float = ANSWER_SECONDS) -> None:
        with failures_end_command():
            super().__init__(profile or profile_or_fail(), timeout)

    def run(self, steps: Steps[Result]) -> Result:
        with failures_end_command():
            return super().run(steps)

    def stream(self, path: str, last: str | None = None, **query: Any) -> Iterator[StreamEvent]:
        with failures_end_command():
            yield from super().stream(path, last, **query)


@contextmanager
def failures_end_command() -> Iterator[None]:
    """End the command with a sentence and its exit code if a call within the block fails."""
    try:
        yield
    except BadAddress as error:
        fail(str(error), Exit.USAGE)
    except ApiProblem as problem:
        fail(str(problem), BY_STATUS.get(problem.status, Exit.FAILED))
    except NoAnswer as error:
        fail(
            f"{error} Is it running? Start it with `rackwright server`, or choose another with `rackwright login URL`.",
            Exit.UNREACHABLE,
        )


def profile_or_fail() -> Profile:
    """Return the server to speak to and the token for it, or end the command with what was tried to find them."""
    try:
        return current_profile()
    except NoServer as error:
        fail(str(error), Exit.NOT_ALLOWED)
