"""A small client of etcd's v3 JSON gateway: keys, transactions, leases and watches, against all members at once.

Attempts are short and go round the members, so that a dead one costs a fraction of a second. All that is sent twice is
safe to be done twice: reads are, and every write is a transaction whose condition holds at most once. The members of
etcd are `etcd_members.py`; what the keys mean is not known here.
"""

import asyncio
import contextlib
import itertools
import json
import ssl
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from rackwright.mesh.errors import Compacted, NoDatastore, Rejected

FIRST_SECONDS = 0.3
LONGEST_SECONDS = 3.0
DEADLINE_SECONDS = 8.0
ROUND_PAUSE = 0.05
PATIENCE_SECONDS = 5.0
"""A watch that is silent for so long goes on at another member: the first may be cut off and not know it."""
MAX_ANSWER = 256 * 1024 * 1024
"""Bytes: more than a datastore may hold in one prefix; a longer answer does not come from one."""
MAX_OPERATIONS = 120
"""Operations in one transaction; etcd takes 128."""
MAX_KEY = 1024
"""Bytes: longer than any key of ours. etcd keeps keys of a megabyte, but a request that names one twice is refused: a
reader of it would get no further, ever."""
_UNCERTAIN_CODES = frozenset({2, 4, 8, 13, 14})
"""gRPC codes after which the request may have been done: unknown, deadline exceeded, exhausted, internal, unavailable.

A member that is ending answers with "unknown" or "internal", whatever became of the request."""
_NEEDS_LEADER = {"Grpc-Metadata-hasleader": "true"}
"""Makes a member without a leader end the watch instead of being silent: it may be on the small side of a partition."""


@dataclass(frozen=True, slots=True)
class Item:
    """A key with its value and the revisions at which it was created and last changed."""

    key: str
    value: bytes
    created: int
    modified: int
    version: int = 1
    """How often the key was written since it was created."""
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the keys below a prefix."""

    items: list[Item]
    """The items whose keys may be ours (`MAX_KEY`)"""
    revision: int
    more: bool = False
    last: str = ""
    """The key after which the next page begins"""


@dataclass(frozen=True, slots=True)
class Change:
    """One change seen by a watch; `item.value` is empty for a deletion."""

    item: Item
    deleted: bool


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """The result of a transaction.

    `attempts` above one means that an earlier attempt may have been the one that did it.
    """

    succeeded: bool
    responses: list[dict[str, Any]]
    revision: int
    attempts: int

    def items(self, index: int = 0) -> list[Item]:
        """Return the items that an operation of the transaction read."""
        with readable("an answer of the datastore"):
            return read_items(self.responses[index].get("response_range", {}))


def text64(text: str | bytes) -> str:
    """Return a text as etcd's gateway takes it: in base64.

    A key that is not UTF-8 was read with its odd bytes escaped, and is written so.
    """
    return b64encode(text.encode(errors="surrogateescape") if isinstance(text, str) else text).decode()


@contextlib.contextmanager
def readable(what: str) -> Iterator[None]:
    """Within the context, an answer that is malformed counts as none: another server made it, and may be rogue."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as problem:
        raise NoDatastore(f"{what} cannot be read: {type(problem).__name__}") from problem


def revision_of(answer: dict[str, Any]) -> int:
    """Return the datastore's revision in an answer."""
    with readable("the revision in an answer of the datastore"):
        return int(answer["header"]["revision"])


def prefix_end(prefix: str) -> str:
    """Return the first key after all that begin with a prefix, as etcd's gateway takes it."""
    raw = prefix.encode(errors="surrogateescape")
    return b64encode(raw[:-1] + bytes([raw[-1] + 1])).decode()


# Parts of a transaction


def put_op(key: str, value: bytes, lease: int = 0) -> dict[str, Any]:
    put: dict[str, Any] = {"key": text64(key), "value": text64(value)}
    return {"request_put": {**put, "lease": str(lease)} if lease else put}


def delete_op(key: str) -> dict[str, Any]:
    return {"request_delete_range": {"key": text64(key)}}


def get_op(key: str) -> dict[str, Any]:
    return {"request_range": {"key": text64(key)}}


def unchanged(key: str, modified: int) -> dict[str, Any]:
    """Return the condition that a key was last changed at this revision; 0 for a key that must not exist."""
    return {"key": text64(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(modified)}


def created_at(key: str, created: int) -> dict[str, Any]:
    """Return the condition that a key was created at this revision."""
    return {"key": text64(key), "target": "CREATE", "result": "EQUAL", "create_revision": str(created)}


class Etcd:
    """A client of all members of one etcd cluster; `endpoints` returns their URLs."""

    def __init__(
        self, endpoints: Callable[[], Sequence[str]], context: ssl.SSLContext | None, local_address: str | None = None
    ) -> None:
        self.endpoints = endpoints
        # A renewed certificate is loaded into the same context object, so the client need not be made anew.
        transport = httpx.AsyncHTTPTransport(verify=context if context else False, local_address=local_address)
        self._http = httpx.AsyncClient(transport=transport, trust_env=False)
        self._preferred = ""

    async def close(self) -> None:
        await self._http.aclose()

    # Calls

    async def call(self, path: str, body: dict[str, Any], deadline: float = DEADLINE_SECONDS) -> dict[str, Any]:
        """Return the answer of any member. Only for requests that may be done more than once."""
        answer, _ = await self.call_counted(path, body, deadline)
        return answer

    async def call_counted(self, path: str, body: dict[str, Any], deadline: float) -> tuple[dict[str, Any], int]:
        """Return the answer of any member, and how many attempts it took. Only for what may be done more than once."""
        loop = asyncio.get_running_loop()
        end = loop.time() + deadline
        why = "no server of it is known here"
        for attempt in itertools.count():
            endpoints = self._endpoints_in_order()
            left = end - loop.time()
            if left <= 0 or not endpoints:
                break
            endpoint = endpoints[attempt % len(endpoints)]
            seconds = min(FIRST_SECONDS * 2 ** (attempt // len(endpoints)), LONGEST_SECONDS, left)
            try:
                answer = await self.call_at(endpoint, path, body, seconds)
            except NoDatastore as problem:
                why = str(problem)
            else:
                self._preferred = endpoint
                return answer, attempt + 1
            if (attempt + 1) % len(endpoints) == 0:
                await asyncio.sleep(ROUND_PAUSE)
        raise NoDatastore(f"the datastore did not answer in {deadline:g} s: {why}; see: rackwright mesh datastore")

    async def call_at(self, endpoint: str, path: str, body: dict[str, Any] | None, seconds: float) -> dict[str, Any]:
        """Make one attempt at one member.

        Raises NoDatastore if it may have been done or not, Rejected if it was not.
        """
        try:
            async with asyncio.timeout(seconds):
                async with self._http.stream("POST", f"{endpoint}{path}", json=body, timeout=None) as response:
                    content = await _read_bounded(response, endpoint)
        except (httpx.HTTPError, OSError, TimeoutError) as problem:
            raise NoDatastore(f"{endpoint}: {_problem_text(problem, seconds)}") from problem
        return read_answer(endpoint, response.status_code, content)

    async def fetch(self, endpoint: str, path: str, seconds: float = 1.0) -> str:
        """Return a plain page of one member, such as its metrics."""
        try:
            async with asyncio.timeout(seconds):
                async with self._http.stream("GET", f"{endpoint}{path}", timeout=None) as response:
                    text = (await _read_bounded(response, endpoint)).decode(errors="replace")
        except (httpx.HTTPError, OSError, TimeoutError) as problem:
            raise NoDatastore(f"{endpoint}: {_problem_text(problem, seconds)}") from problem
        if response.status_code != 200:
            raise NoDatastore(f"{endpoint}{path} answered {response.status_code}: {text[:200]}")
        return text

    def _endpoints_in_order(self) -> list[str]:
        """Return the endpoints, the one that answered last first."""
        endpoints = list(dict.fromkeys(self.endpoints()))
        if self._preferred in endpoints:
            index = endpoints.index(self._preferred)
            return endpoints[index:] + endpoints[:index]
        return endpoints

    # Keys

    async def get(self, key: str, deadline: float = DEADLINE_SECONDS, revision: int = 0) -> Item | None:
        """Return a key as it is now, or as it was at a revision; None if it does not exist."""
        body = {"key": text64(key), "revision": str(revision)}
        items = read_items(await self.call("/v3/kv/range", body, deadline))
        return items[0] if items else None

    async def page(
        self, prefix: str, *, after: str = "", limit: int = 0, keys_only: bool = False, deadline: float = 8.0
    ) -> Page:
        """Return the keys that begin with a prefix, in order; `after` is the `last` of the page before."""
        first = text64(f"{after}\0") if after else text64(prefix)
        body = {"key": first, "range_end": prefix_end(prefix), "limit": str(limit), "keys_only": keys_only}
        answer = await self.call("/v3/kv/range", body, deadline)
        items = read_items(answer)
        usable = [item for item in items if len(item.key) <= MAX_KEY]
        return Page(usable, revision_of(answer), bool(answer.get("more")), items[-1].key if items else "")

    async def transact(
        self,
        conditions: Sequence[dict[str, Any]],
        then: Sequence[dict[str, Any]],
        otherwise: Sequence[dict[str, Any]] = (),
        deadline: float = DEADLINE_SECONDS,
    ) -> TransactionResult:
        """Do all of `then` if every condition holds, else `otherwise`.

        The conditions must not hold again afterwards.
        """
        body = {"compare": list(conditions), "success": list(then), "failure": list(otherwise)}
        answer, attempts = await self.call_counted("/v3/kv/txn", body, deadline)
        responses = answer.get("responses", [])
        if not isinstance(responses, list):
            raise NoDatastore("an answer of the datastore cannot be read")
        return TransactionResult(bool(answer.get("succeeded")), responses, revision_of(answer), attempts)

    async def replace(
        self, key: str, value: bytes, before: Item | None, lease: int = 0, deadline: float = DEADLINE_SECONDS
    ) -> bool:
        """Write a key if it was not changed since `before`; return whether it was written.

        The value must be one that no other client writes: a retry knows by it whether an earlier attempt of its own was
        done, although others may have written since.
        """
        condition = unchanged(key, before.modified if before else 0)
        result = await self.transact([condition], [put_op(key, value, lease)], [get_op(key)], deadline)
        if result.succeeded or result.attempts == 1:
            return result.succeeded
        return await self._was_written_next(before, result.items(), value, deadline)

    async def _was_written_next(self, before: Item | None, now: list[Item], value: bytes, deadline: float) -> bool:
        """Whether the value that was written right after `before` is this one."""
        version = before.version + 1 if before else 1
        item = now[0] if now else None
        while item is not None and item.version > version:
            try:
                item = await self.get(item.key, deadline, item.modified - 1)
            except Rejected as problem:
                raise NoDatastore(f"nobody can say any more whether the write was done: {problem}") from problem
        if item is None or (before is not None and item.created != before.created):
            raise NoDatastore("the key was deleted meanwhile, so nobody can say whether the write was done")
        return item.value == value

    async def put(self, key: str, value: bytes, lease: int = 0, deadline: float = DEADLINE_SECONDS) -> None:
        """Write a key once, whatever it holds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + deadline
        while True:
            before = await self.get(key, max(0.05, end - loop.time()))
            if await self.replace(key, value, before, lease, max(0.05, end - loop.time())):
                return

    async def delete(self, key: str, before: Item | None = None) -> None:
        """Delete a key; with `before`, only if it was not changed since."""
        conditions = [unchanged(key, before.modified)] if before else []
        await self.transact(conditions, [delete_op(key)])

    async def delete_all(self, prefix: str) -> None:
        await self.call("/v3/kv/deleterange", {"key": text64(prefix), "range_end": prefix_end(prefix)})

    # Leases

    async def grant(self, seconds: int, deadline: float = DEADLINE_SECONDS) -> int:
        """Make a lease; return its id."""
        answer = await self.call("/v3/lease/grant", {"TTL": str(seconds)}, deadline)
        with readable("a lease of the datastore"):
            return int(answer["ID"])

    async def keep_alive(self, lease: int, deadline: float = DEADLINE_SECONDS) -> bool:
        """Prolong a lease to its whole time again; return whether it still exists."""
        answer = await self.call("/v3/lease/keepalive", {"ID": str(lease)}, deadline)
        with readable("a lease of the datastore"):
            return int(answer.get("result", {}).get("TTL", 0)) > 0

    async def granted_seconds(self, lease: int, deadline: float = DEADLINE_SECONDS) -> int:
        """Return for how many seconds a lease was granted; 0 for one that is gone."""
        answer = await self.call("/v3/lease/timetolive", {"ID": str(lease)}, deadline)
        with readable("a lease of the datastore"):
            return int(answer.get("grantedTTL", 0))

    async def revoke(self, lease: int) -> None:
        """End a lease, and delete its keys."""
        with contextlib.suppress(Rejected):  # the lease is gone already
            await self.call("/v3/lease/revoke", {"ID": str(lease)}, deadline=2.0)

    # Watches

    async def watch(
        self, prefix: str, revision: int, patience: float = PATIENCE_SECONDS
    ) -> AsyncIterator[list[Change]]:
        """Yield every change below a prefix from `revision` on, each once and in order; an empty list now and then.

        Raises Compacted when the datastore no longer has what comes next.
        """
        for turn in itertools.count():
            endpoints = self._endpoints_in_order()
            if not endpoints:
                await asyncio.sleep(1.0)
                yield []
                continue
            try:
                async for changes, seen in self._watch_at(endpoints[turn % len(endpoints)], prefix, revision, patience):
                    revision = max(revision, seen + 1)
                    yield [change for change in changes if len(change.item.key) <= MAX_KEY]
            except (httpx.HTTPError, OSError, NoDatastore):
                await asyncio.sleep(ROUND_PAUSE)
            except TimeoutError:
                pass
            yield []

    async def _watch_at(
        self, endpoint: str, prefix: str, revision: int, patience: float
    ) -> AsyncIterator[tuple[list[Change], int]]:
        watched = {"key": text64(prefix), "range_end": prefix_end(prefix), "start_revision": str(revision)}
        body = {"create_request": {**watched, "progress_notify": True}}
        url = f"{endpoint}/v3/watch"
        async with self._http.stream("POST", url, json=body, headers=_NEEDS_LEADER, timeout=patience) as response:
            lines = _read_lines(response, endpoint)
            while True:
                async with asyncio.timeout(patience):
                    line = await anext(lines, None)
                if line is None:
                    return
                with readable(f"what {endpoint} tells of changes"):
                    update = _read_watch_line(line)
                if update is None:
                    return
                if update[0] or update[1]:
                    yield update


async def _read_bounded(response: httpx.Response, endpoint: str) -> bytes:
    """Return the body of a response, or raise NoDatastore if it is longer than any could be."""
    parts, size = [], 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > MAX_ANSWER:
            raise NoDatastore(f"{endpoint} answered with more than {MAX_ANSWER >> 20} MB")
        parts.append(part)
    return b"".join(parts)


async def _read_lines(response: httpx.Response, endpoint: str) -> AsyncIterator[bytes]:
    """Yield the lines of a response that goes on, none longer than a body may be."""
    partial: list[bytes] = []
    size = 0
    async for part in response.aiter_bytes():
        first, *others = part.split(b"\n")
        partial.append(first)
        size += len(first)
        for start in others:
            yield b"".join(partial)
            partial, size = [start], len(start)
        if size > MAX_ANSWER:
            raise NoDatastore(f"{endpoint} tells of changes in lines of more than {MAX_ANSWER >> 20} MB")


def _read_watch_line(line: bytes) -> tuple[list[Change], int] | None:
    """Return the changes in a line of a watch, and the revision up to which it is complete; None if the watch is
    over."""
    result = json.loads(line).get("result", {}) if line.strip() else {}
    if int(result.get("compact_revision", 0)):
        raise Compacted(int(result["compact_revision"]))
    if result.get("canceled") or b"error" in line[:12]:
        return None
    changes = [_read_change(event) for event in result.get("events", ())]
    if changes:
        return changes, changes[-1].item.modified
    # A sign of life: all changes up to this revision have been sent.
    return [], 0 if result.get("created") else int(result.get("header", {}).get("revision", 0))


def read_answer(endpoint: str, status: int, content: bytes) -> dict[str, Any]:
    """Return an answer of a member; Rejected if the request was certainly not done, NoDatastore if that is unknown."""
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError) as problem:
        raise NoDatastore(f"{endpoint} answered {status} and no JSON") from problem
    if not isinstance(answer, dict):
        raise NoDatastore(f"{endpoint} answered {status} and no JSON object")
    if status == 200 and "error" not in answer:
        return dict(answer)
    error = answer.get("error", answer)
    message = str(error.get("message") if isinstance(error, dict) else error)
    code = answer.get("code", error.get("grpc_code") if isinstance(error, dict) else None)
    if code in _UNCERTAIN_CODES or status in (502, 503, 504):
        raise NoDatastore(f"{endpoint}: {message}")
    raise Rejected(message)


def _problem_text(problem: BaseException, seconds: float) -> str:
    return f"no answer in {seconds:.1f} s" if isinstance(problem, TimeoutError) else str(problem) or repr(problem)


def read_items(answer: dict[str, Any]) -> list[Item]:
    """Return the items in an answer."""
    with readable("an answer of the datastore"):
        return [_read_item(entry) for entry in answer.get("kvs", ())]


def _read_item(entry: dict[str, Any]) -> Item:
    return Item(
        b64decode(entry["key"]).decode(errors="surrogateescape"),
        b64decode(entry.get("value", "")),
        int(entry.get("create_revision", 0)),
        int(entry.get("mod_revision", 0)),
        int(entry.get("version", 0)),
        int(entry.get("lease", 0)),
    )


def _read_change(event: dict[str, Any]) -> Change:
    return Change(_read_item(event["kv"]), event.get("type") == "DELETE")
