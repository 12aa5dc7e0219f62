"""Calls of the API as steps that do no input or output themselves.

Each function here is a generator: it yields a `Call` and is sent the `Answer`, or `NoAnswer` if there was none; it
yields a `Pause` to be woken later. So retries, paging and checking that nobody changed an object meanwhile are written
once, and a client, whether it blocks or awaits, only carries out the calls and pauses that are yielded.
"""

import json
import secrets
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

from rackwright.client.access import PREFIX
from rackwright.client.errors import ApiProblem, NoAnswer, problem_from

ANSWER_SECONDS = 60.0
"""How long an answer may take; a stream may be silent for as long."""
PAGE = 1000
"""The most items that the server gives in one page."""
MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True)
class Call:
    """A make_call that is ready to be sent."""

    method: str
    path: str
    """From the root of the server on, quoted."""
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.method} {self.path.removeprefix(PREFIX)}"


@dataclass(frozen=True)
class Pause:
    """A step that does nothing for some seconds."""

    seconds: float


@dataclass(frozen=True)
class Answer:
    """A complete answer of a server."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", "replace")

    @property
    def json(self) -> Any:
        """The JSON value of the content; None: the content is empty."""
        return json.loads(self.content) if self.content else None


Result = TypeVar("Result")
Steps = Generator[Call | Pause, Answer | NoAnswer | None, Result]
"""Calls and pauses in their order, and the result of all of them."""


def _ignore(line: str) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class RetryPolicy:
    """How often a call is tried, and with which pauses. An idempotency key keeps a change from being made twice."""

    attempts: int | None = 3
    """None: until there is an answer. The caller limits how long that may take."""
    pause: float = 0.3
    """Seconds before the second attempt; the pause grows by as much with each further one, up to `longest_pause`."""
    longest_pause: float = 1.0
    retry_statuses: frozenset[int] = frozenset()
    """Statuses that mean: not now. The call is tried again after them too."""
    report: Callable[[str], None] = _ignore
    """Called with a line for each attempt that got no answer."""

    def ends_after(self, attempt: int) -> bool:
        return self.attempts is not None and attempt >= self.attempts


ONCE = RetryPolicy(attempts=1)


def make_call(
    method: str,
    path: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    query: Mapping[str, Any] | None = None,
) -> Call:
    """Return a call of the API; parameters of the query that are None are not sent."""
    all_headers = dict(headers or {})
    if body is not None:
        all_headers = {"Content-Type": "application/json", **all_headers}
    return Call(
        method,
        PREFIX + quote_path(path),
        None if body is None else json.dumps(body).encode(),
        all_headers,
        {key: value for key, value in (query or {}).items() if value is not None},
    )


def quote_path(path: str) -> str:
    """Return a path with its names quoted; a name such as `..`, which would change the path, is refused."""
    if not {"", ".", ".."}.isdisjoint(path.split("/")[1:]):
        raise ApiProblem(404, f"There is nothing of the name {path.split('/', 2)[-1]!r}.")
    return quote(path, safe="/:@")


def send_with_retries(call: Call, retry: RetryPolicy) -> Steps[Answer]:
    """Return the answer to a call if it is a success, else raise an `ApiError`; try as often as the policy allows."""
    attempt = 1
    while True:
        answer = yield call
        assert answer is not None, "a call is answered, or it is said that it was not"
        if isinstance(answer, NoAnswer):
            if retry.ends_after(attempt):
                raise answer
            retry.report(f"{call} got no answer yet ({answer.trouble}); asking again")
        elif answer.is_success:
            return answer
        elif answer.status not in retry.retry_statuses or retry.ends_after(attempt):
            raise problem_from(answer.status, answer.content, str(call))
        yield Pause(min(retry.pause * attempt, retry.longest_pause))
        attempt += 1


def get(retry: RetryPolicy, path: str, query: Mapping[str, Any]) -> Steps[Any]:
    """Read an object."""
    return (yield from send_with_retries(make_call("GET", path, query=query), retry)).json


def pages(retry: RetryPolicy, path: str, limit: int | None, query: Mapping[str, Any]) -> Steps[list[dict[str, Any]]]:
    """Read a list from its first page to its last, or its first `limit` items."""
    items: list[dict[str, Any]] = []
    cursor = None
    while limit is None or len(items) < limit:
        size = PAGE if limit is None else min(PAGE, limit - len(items))
        page = yield from get(retry, path, {"cursor": cursor, "limit": size, **query})
        items.extend(page["items"])
        cursor = page["next"]
        if cursor is None:
            break
    return items


def post(retry: RetryPolicy, path: str, body: Any, query: Mapping[str, Any]) -> Steps[Any]:
    """Create or do something; it is done once, however often the call has to be sent."""
    key = {"Idempotency-Key": secrets.token_hex(16)}
    return (yield from send_with_retries(make_call("POST", path, body, key, query), retry)).json


def merge(retry: RetryPolicy, path: str, changes: Mapping[str, Any]) -> Steps[Any]:
    """Change some fields of an object; if somebody else changes the object meanwhile, nothing is done."""
    headers = {"Content-Type": MERGE_PATCH, **(yield from read_if_match(retry, path))}
    return (yield from send_with_retries(make_call("PATCH", path, dict(changes), headers), retry)).json


def put(retry: RetryPolicy, path: str, body: Any, check_unchanged: bool) -> Steps[Any]:
    """Replace an object. `check_unchanged`: only if nobody changes it meanwhile; it must be readable by itself."""
    headers = (yield from read_if_match(retry, path)) if check_unchanged else {}
    return (yield from send_with_retries(make_call("PUT", path, body, headers), retry)).json


def delete(retry: RetryPolicy, path: str, check_unchanged: bool) -> Steps[Any]:
    """Delete an object. `check_unchanged`: only if nobody changes it meanwhile; it must be readable by itself."""
    headers = (yield from read_if_match(retry, path)) if check_unchanged else {}
    return (yield from send_with_retries(make_call("DELETE", path, None, headers), retry)).json


def read_if_match(retry: RetryPolicy, path: str) -> Steps[dict[str, str]]:
    """Read an object, and return the header that has a change refused if the object is no longer as it was read."""
    item = yield from get(retry, path, {})
    tag = item.get("etag") if isinstance(item, dict) else None
    return {"If-Match": f'"{tag}"'} if tag else {}


def is_ready() -> Steps[bool]:
    """Ask once whether the server answers and does its work."""
    answer = yield Call("GET", "/readyz")
    return isinstance(answer, Answer) and answer.status == 200


def make_token(origin: str, name: str, password: str, token_name: str) -> Steps[str]:
    """Log in with a password as a browser does, have a token made, and log out again.

    The password is sent only once, because each wrong password counts. `origin` is the server's URL, which a browser
    would send along.
    """
    session = yield from send_with_retries(make_call("POST", "/sessions", {"name": name, "password": password}), ONCE)
    headers = {"X-CSRF-Token": session.json["csrf"], "Origin": origin}
    body = {"name": token_name, "scope": "admin"}
    token = yield from send_with_retries(make_call("POST", "/tokens", body, headers), ONCE)
    logout = yield make_call("DELETE", "/sessions/current", headers=headers)
    if isinstance(logout, NoAnswer):  # any answer will do: the session is over, or ends by itself
        raise logout
    return str(token.json["token"])
