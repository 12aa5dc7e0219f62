"""The way to the server: calls of the API as the person at the keyboard, with what it refuses said in one sentence."""

import json
import secrets
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rackwright.cli.output.exits import BY_STATUS, Exit, fail
from rackwright.cli.profile import NoServer, Profile, current_profile
from rackwright.shown_urls import shown_url

if TYPE_CHECKING:
    import httpx

PREFIX = "/api/v2"
ATTEMPTS = 3
"""So often a call is tried when the server does not answer; an idempotency key keeps it from being done twice."""


class Client:
    """Calls of the API with this person's token."""

    def __init__(self, profile: Profile | None = None, timeout: float = 60) -> None:
        import httpx

        found = profile or profile_or_fail()
        self.profile = found
        try:
            self._http = httpx.Client(
                base_url=f"{found.url}{PREFIX}",
                timeout=timeout,
                trust_env=False,
                verify=verified_by(found.ca),
                headers={"Authorization": f"Bearer {found.token}"},
            )
        except httpx.InvalidURL as error:
            fail(f"{shown_url(found.url)} is no URL of a server ({error}); one is http://127.0.0.1:8090.", Exit.USAGE)

    # --- objects

    def get(self, path: str, /, **query: Any) -> Any:
        return self._call("GET", path, **query)

    def pages(self, path: str, limit: int | None = None, /, **query: Any) -> list[dict[str, Any]]:
        """A list, from its first page to its last, or so many of it."""
        found: list[dict[str, Any]] = []
        cursor = None
        while limit is None or len(found) < limit:
            size = 1000 if limit is None else min(1000, limit - len(found))
            page = self.get(path, cursor=cursor, limit=size, **query)
            found.extend(page["items"])
            cursor = page["next"]
            if cursor is None:
                break
        return found

    def post(self, path: str, body: Any = None, /, **query: Any) -> Any:
        return self._call("POST", path, body, {"Idempotency-Key": secrets.token_hex(16)}, **query)

    def merge(self, path: str, changes: Mapping[str, Any]) -> Any:
        """Change an object as it is now: if somebody else does so meanwhile, nothing is done."""
        headers = {"Content-Type": "application/merge-patch+json", **self._seen(path)}
        return self._call("PATCH", path, dict(changes), headers)

    def put(self, path: str, body: Any, *, tagged: bool = True) -> Any:
        """`tagged`: it is an object of its own, which can be read and must be as it is now."""
        return self._call("PUT", path, body, self._seen(path) if tagged else {})

    def delete(self, path: str, *, tagged: bool = True) -> Any:
        return self._call("DELETE", path, None, self._seen(path) if tagged else {})

    def _seen(self, path: str) -> dict[str, str]:
        found = self.get(path)
        tag = found.get("etag") if isinstance(found, dict) else None
        return {"If-Match": f'"{tag}"'} if tag else {}

    def text(self, path: str, **query: Any) -> tuple[str, "httpx.Headers"]:
        answer = self._request("GET", path, None, {}, query)
        return answer.text, answer.headers

    # --- streams

    def stream(self, path: str, last: str | None = None, **query: Any) -> Iterator[tuple[str, str, Any]]:
        """Server-sent events: id, kind and data of each. It ends when the server ends it or goes away."""
        import httpx

        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
        try:
            with self._http.stream(
                "GET", _quoted(path), headers=headers, params=_given(query), timeout=httpx.Timeout(60, read=60)
            ) as answer:
                if not answer.is_success:
                    answer.read()
                    _refused(answer)
                yield from _events(answer.iter_lines())
        except httpx.TransportError:
            return

    # --- one call

    def _call(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, /, **query: Any
    ) -> Any:
        answer = self._request(method, path, body, headers or {}, query)
        return answer.json() if answer.content else None

    def _request(
        self, method: str, path: str, body: Any, headers: Mapping[str, str], query: Mapping[str, Any]
    ) -> "httpx.Response":
        import httpx

        content = None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **headers} if body is not None else dict(headers)
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(0.3 * attempt)
            try:
                answer = self._http.request(method, _quoted(path), content=content, headers=sent, params=_given(query))
            except httpx.UnsupportedProtocol:
                fail(f"{shown_url(self.profile.url)} begins with neither http:// nor https://.", Exit.USAGE)
            except httpx.TransportError as error:
                trouble = error
                continue
            if answer.is_success:
                return answer
            _refused(answer)
        fail(
            f"The server at {shown_url(self.profile.url)} does not answer ({trouble}). Is it running? Start it with"
            " `rackwright server`, or choose another with `rackwright login URL`.",
            Exit.UNREACHABLE,
        )


def profile_or_fail() -> Profile:
    """Return the server to speak to, or end the command with what was tried to find one."""
    try:
        return current_profile()
    except NoServer as trouble:
        fail(str(trouble), Exit.NOT_ALLOWED)


def verified_by(ca: str | None) -> Any:
    """Return what an HTTP client trusts: the certificates of a file, or else those of this host."""
    import ssl

    if ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        fail(f"The certificates in {ca} cannot be read: {error}", Exit.USAGE)


def _quoted(path: str) -> str:
    """A path whose names, which people gave, stay names."""
    if not {"", ".", ".."}.isdisjoint(path.split("/")[1:]):
        fail(f"There is nothing of the name {path.split('/', 2)[-1]!r}.", Exit.NOT_FOUND)
    return quote(path, safe="/:@")


def _given(query: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in query.items() if value is not None}


def _refused(answer: "httpx.Response") -> None:
    fail(reason(answer), BY_STATUS.get(answer.status_code, Exit.FAILED))


def reason(answer: "httpx.Response") -> str:
    """The server's own words, with the place they are about."""
    try:
        problem = answer.json()
    except ValueError:
        return f"The server answered {answer.status_code} without saying why."
    said = str(problem.get("detail") or problem.get("title") or answer.status_code)
    errors = problem.get("errors")
    if isinstance(errors, list) and errors:  # all of them, each once: the detail is the first of them
        return "; ".join(str(error.get("detail", "")) for error in errors)
    pointer = str(problem.get("pointer") or "")
    return said if all(step in said for step in pointer.split("/")) else f"{pointer}: {said}"


def _events(lines: Iterator[str]) -> Iterator[tuple[str, str, Any]]:
    id, kind, data = "", "message", ""
    for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                yield id, kind, json.loads(data)
            kind, data = "message", ""
        elif name == "id":
            id = value
        elif name == "event":
            kind = value
        elif name == "data":
            data += value
