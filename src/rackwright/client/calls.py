"""Calls of the API as steps that do no input or output themselves.

Each function here is a generator: it yields a `Call` and is sent the `Answer`, or `NoAnswer` if there was none; it
yields a `Pause` to be woken later. So trying again, paging and checking that nobody was quicker are written once, and
a client, whether it blocks or awaits, only carries out what is yielded.
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
"""The most items that the server gives at once."""
MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True)
class Call:
    """A request that is ready to be sent."""

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
    """Do nothing for some seconds."""

    seconds: float


@dataclass(frozen=True)
class Answer:
    """What a server answered, whole."""

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
        """The value in it; None: it is empty."""
        return json.loads(self.content) if self.content else None


Got = TypeVar("Got")
Steps = Generator[Call | Pause, Answer | NoAnswer | None, Got]
"""Calls and pauses in their order, and what comes of them."""


def _tell_nobody(line: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Patience:
    """How often a call is tried. An idempotency key keeps a change from being made twice."""

    attempts: int | None = 3
    """None: until there is an answer. How long that may take is for the caller to say."""
    pause: float = 0.3
    """Seconds before the second attempt; each further one waits so much longer, up to `longest`."""
    longest: float = 1.0
    later: frozenset[int] = frozenset()
    """Statuses that mean: not now. The call is tried again after them too."""
    tell: Callable[[str], None] = _tell_nobody
    """It is told of each attempt that got no answer."""

    def ends_after(self, attempt: int) -> bool:
        return self.attempts is not None and attempt >= self.attempts


ONCE = Patience(attempts=1)


def request(
    method: str,
    path: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    query: Mapping[str, Any] | None = None,
) -> Call:
    """Return a call of the API; what the query leaves open (None) is not sent."""
    given = dict(headers or {})
    if body is not None:
        given = {"Content-Type": "application/json", **given}
    return Call(
        method,
        PREFIX + quoted(path),
        None if body is None else json.dumps(body).encode(),
        given,
        {key: value for key, value in (query or {}).items() if value is not None},
    )


def quoted(path: str) -> str:
    """Return a path whose names, which people gave, stay names."""
    if not {"", ".", ".."}.isdisjoint(path.split("/")[1:]):
        raise ApiProblem(404, f"There is nothing of the name {path.split('/', 2)[-1]!r}.")
    return quote(path, safe="/:@")


def exchange(call: Call, patience: Patience) -> Steps[Answer]:
    """Return the answer to a call if it is a success, or raise why not; try as often as patience lasts."""
    attempt = 1
    while True:
        answer = yield call
        assert answer is not None, "a call is answered, or it is said that it was not"
        if isinstance(answer, NoAnswer):
            if patience.ends_after(attempt):
                raise answer
            patience.tell(f"{call} got no answer yet ({answer.trouble}); asking again")
        elif answer.is_success:
            return answer
        elif answer.status not in patience.later or patience.ends_after(attempt):
            raise problem_from(answer.status, answer.content, str(call))
        yield Pause(min(patience.pause * attempt, patience.longest))
        attempt += 1


def get(patience: Patience, path: str, query: Mapping[str, Any]) -> Steps[Any]:
    """Read an object."""
    return (yield from exchange(request("GET", path, query=query), patience)).json


def pages(patience: Patience, path: str, limit: int | None, query: Mapping[str, Any]) -> Steps[list[dict[str, Any]]]:
    """Read a list from its first page to its last, or so many of its items."""
    items: list[dict[str, Any]] = []
    cursor = None
    while limit is None or len(items) < limit:
        size = PAGE if limit is None else min(PAGE, limit - len(items))
        page = yield from get(patience, path, {"cursor": cursor, "limit": size, **query})
        items.extend(page["items"])
        cursor = page["next"]
        if cursor is None:
            break
    return items


def post(patience: Patience, path: str, body: Any, query: Mapping[str, Any]) -> Steps[Any]:
    """Make or do something, once, however often it has to be asked for."""
    key = {"Idempotency-Key": secrets.token_hex(16)}
    return (yield from exchange(request("POST", path, body, key, query), patience)).json


def merge(patience: Patience, path: str, changes: Mapping[str, Any]) -> Steps[Any]:
    """Change an object as it is now: if somebody else does so meanwhile, nothing is done."""
    headers = {"Content-Type": MERGE_PATCH, **(yield from if_unchanged(patience, path))}
    return (yield from exchange(request("PATCH", path, dict(changes), headers), patience)).json


def put(patience: Patience, path: str, body: Any, tagged: bool) -> Steps[Any]:
    """Replace an object. `tagged`: it can be read by itself and must be as it is now."""
    headers = (yield from if_unchanged(patience, path)) if tagged else {}
    return (yield from exchange(request("PUT", path, body, headers), patience)).json


def delete(patience: Patience, path: str, tagged: bool) -> Steps[Any]:
    """Take an object away. `tagged`: it can be read by itself and must be as it is now."""
    headers = (yield from if_unchanged(patience, path)) if tagged else {}
    return (yield from exchange(request("DELETE", path, None, headers), patience)).json


def if_unchanged(patience: Patience, path: str) -> Steps[dict[str, str]]:
    """Read an object, and return the header that makes a change of it hold only if it is still as it was read."""
    found = yield from get(patience, path, {})
    tag = found.get("etag") if isinstance(found, dict) else None
    return {"If-Match": f'"{tag}"'} if tag else {}


def is_ready() -> Steps[bool]:
    """Ask once whether the server does its work."""
    answer = yield Call("GET", "/readyz")
    return isinstance(answer, Answer) and answer.status == 200


def make_token(origin: str, name: str, password: str, token_name: str) -> Steps[str]:
    """Log in with a password as a browser does, have a token made, and log out again.

    It asks once: each wrong password counts. `origin` is the server's URL, which a browser would send along.
    """
    entered = yield from exchange(request("POST", "/sessions", {"name": name, "password": password}), ONCE)
    headers = {"X-CSRF-Token": entered.json["csrf"], "Origin": origin}
    wanted = {"name": token_name, "scope": "admin"}
    made = yield from exchange(request("POST", "/tokens", wanted, headers), ONCE)
    left = yield request("DELETE", "/sessions/current", headers=headers)
    if isinstance(left, NoAnswer):  # any answer will do: the session is over, or ends by itself
        raise left
    return str(made.json["token"])
