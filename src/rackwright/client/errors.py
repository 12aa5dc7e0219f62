"""The errors of the client: one base class, and one class for each way in which a call can fail."""

import json
from collections.abc import Mapping
from typing import Any

from rackwright.shown_urls import shown_url


class ApiError(Exception):
    """A call of the API failed; the text is one sentence for people."""


class BadAddress(ApiError):
    """The URL or the certificates of a server cannot be used; nothing was sent."""


class NoAnswer(ApiError):
    """The server did not answer; whether it took the request is unknown."""

    def __init__(self, url: str, trouble: str) -> None:
        super().__init__(f"The server at {shown_url(url)} does not answer ({trouble}).")
        self.url = url
        self.trouble = trouble


class ApiProblem(ApiError):
    """The server refused a call, for the reason that its problem details (RFC 9457) give."""

    def __init__(self, status: int, sentence: str, call: str = "", details: Mapping[str, Any] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.call = call
        """Method and path of the call."""
        self.details = dict(details or {})

    @property
    def type(self) -> str:
        """The kind of the problem, a URN; empty: the server did not say."""
        return str(self.details.get("type", ""))


def problem_from(status: int, content: bytes, call: str = "") -> ApiProblem:
    """Return the error for an answer that is not a success."""
    try:
        details = json.loads(content)
    except ValueError:
        details = None
    if not isinstance(details, dict):
        return ApiProblem(status, f"The server answered {status} without saying why.", call)
    return ApiProblem(status, _sentence(status, details), call, details)


def _sentence(status: int, details: Mapping[str, Any]) -> str:
    """Return the server's own words, with the pointer to the field they are about."""
    detail = str(details.get("detail") or details.get("title") or status)
    errors = details.get("errors")
    if isinstance(errors, list) and errors:  # all of them, each once: the detail is the first of them
        return "; ".join(str(error.get("detail", "")) for error in errors)
    pointer = str(details.get("pointer") or "")
    return detail if all(step in detail for step in pointer.split("/")) else f"{pointer}: {detail}"
