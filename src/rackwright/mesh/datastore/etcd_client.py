"""A small client of etcd's v3 JSON gateway: keys, transactions, leases and watches, against all members at once.

Attempts are short and go round the members, so that a dead one costs a fraction of a second. Whatever is sent twice is
safe to be done twice: reads are, and every write is a transaction whose condition holds at most once. The cluster's own
members are `etcd_members.py`; what the keys mean is for others to know.
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
"""A watch that is silent for so long goes on at another member: this one may be cut off and not know it."""
MAX_ANSWER = 256 * 1024 * 1024
"""More than all that a datastore may hold in one prefix; what answers more is none."""
MAX_OPERATIONS = 120
"""etcd takes 128 in a transaction."""
MAX_KEY = 1024
"""Longer than any key of ours. etcd keeps keys of a megabyte, but a question that names one twice is refused: whoever
asked about it would get no further, ever."""
_AGAIN = frozenset({2, 4, 8, 13, 14})
"""gRPC codes that do not say that nothing was done: unknown, deadline exceeded, exhausted, internal, unavailable.

A member that is ending answers with "unknown" or "internal", whatever became of the request."""
_NEEDS_LEADER = {"Grpc-Metadata-hasleader": "true"}
"""A member without a leader ends the watch instead of being silent: it may be on the small side of a partition."""


@dataclass(frozen=True, slots=True)
class Item:
    """A key with its value and the revisions at which it was made and last changed."""

    key: str
    value: bytes
    created: int
    modified: int
    version: int = 1
    """How often it was written since it was made."""
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Page:
    items: list[Item]
    """Those with keys that may be ours (`MAX_KEY`)"""
    revision: int
    more: bool = False
    last: str = ""
    """Where the next page begins"""


@dataclass(frozen=True, slots=True)
class Change:
    """One change seen by a watch; `item.value` is empty for a deletion."""

    item: Item
    deleted: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a transaction. `attempts` above one means that an earlier attempt may have been the one that did it."""

    succeeded: bool
    responses: list[dict[str, Any]]
    revision: int
    attempts: int

    def items(self, place: int = 0) -> list[Item]:
        with readable("an answer of the datastore"):
            return read_items(self.responses[place].get("response_range", {}))


def text64(text: str | bytes) -> str:
    """As etcd's gateway wants it. A key that is not UTF-8 was read with its odd bytes escaped, and is written so."""
    return b64encode(text.encode(errors="surrogateescape") if isinstance(text, str) else text).decode()


@contextlib.contextmanager
def readable(what: str) -> Iterator[None]:
    """Within it, an answer that is not as it must be is none: another server made it, and may be rogue."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as problem:
        raise NoDatastore(f"{what} cannot be read: {type(problem).__name__}") from problem


def revision_of(answer: dict[str, Any]) -> int:
    with readable("the revision in an answer of the datastore"):
        return int(answer["header"]["revision"])


def prefix_end(prefix: str) -> str:
    """The first key after all that begin with this, as etcd wants it."""
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
    """The key was last changed at this revision; 0 for a key that must not be there."""
    return {"key": text64(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(modified)}


def made_at(key: str, created: int) -> dict[str, Any]:
    return {"key": text64(key), "target": "CREATE", "result": "EQUAL", "create_revision": str(created)}


class Etcd:
    def __init__(
        self, endpoints: Callable[[], Sequence[str]], context: ssl.SSLContext | None, local_address: str | None = None
    ) -> None:
        self.endpoints = endpoints
        # Read anew by whoever renews the certificate: a context that is reloaded stays the same object.
        transport = httpx.AsyncHTTPTransport(verify=context if context else False, local_address=local_address)
        self._http = httpx.AsyncClient(transport=transport, trust_env=False)
        self._preferred = ""

    async def close(self) -> None:
        await self._http.aclose()

    # The carriage

    async def call(self, path: str, body: dict[str, Any], deadline: float = DEADLINE_SECONDS) -> dict[str, Any]:
        answer, _ = await self.call_counted(path, body, deadline)
        return answer

    async def call_counted(self, path: str, body: dict[str, Any], deadline: float) -> tuple[dict[str, Any], int]:
        """The answer, and how many attempts it took. Only for what may be done more than once."""
        loop = asyncio.get_running_loop()
        end = loop.time() + deadline
        why = "no server of it is known here"
        for attempt in itertools.count():
            order = self._order()
            left = end - loop.time()
            if left <= 0 or not order:
                break
            endpoint = order[attempt % len(order)]
            patience = min(FIRST_SECONDS * 2 ** (attempt // len(order)), LONGEST_SECONDS, left)
            try:
                answer = await self.call_at(endpoint, path, body, patience)
            except NoDatastore as problem:
                why = str(problem)
            else:
                self._preferred = endpoint
                return answer, attempt + 1
            if (attempt + 1) % len(order) == 0:
                await asyncio.sleep(ROUND_PAUSE)
        raise NoDatastore(f"the datastore did not answer in {deadline:g} s: {why}; see: rackwright mesh datastore")

    async def call_at(self, endpoint: str, path: str, body: dict[str, Any] | None, seconds: float) -> dict[str, Any]:
        """One attempt at one member. Raises NoDatastore if it may or may not have been done, Rejected if it was not."""
        try:
            async with asyncio.timeout(seconds):
                async with self._http.stream("POST", f"{endpoint}{path}", json=body, timeout=None) as response:
                    content = await _bounded(response, endpoint)
        except (httpx.HTTPError, OSError, TimeoutError) as problem:
            raise NoDatastore(f"{endpoint}: {_told(problem, seconds)}") from problem
        return read_answer(endpoint, response.status_code, content)

    async def fetch(self, endpoint: str, path: str, seconds: float = 1.0) -> str:
        """A plain page of one member, such as its metrics."""
        try:
            async with asyncio.timeout(seconds):
                async with self._http.stream("GET", f"{endpoint}{path}", timeout=None) as response:
                    text = (await _bounded(response, endpoint)).decode(errors="replace")
        except (httpx.HTTPError, OSError, TimeoutError) as problem:
            raise NoDatastore(f"{endpoint}: {_told(problem, seconds)}") from problem
        if response.status_code != 200:
            raise NoDatastore(f"{endpoint}{path} answered {response.status_code}: {text[:200]}")
        return text

    def _order(self) -> list[str]:
        known = list(dict.fromkeys(self.endpoints()))
        if self._preferred in known:
            place = known.index(self._preferred)
            return known[place:] + known[:place]
        return known

    # Keys

    async def get(self, key: str, deadline: float = DEADLINE_SECONDS, revision: int = 0) -> Item | None:
        """The key as it is now, or as it was at a revision."""
        body = {"key": text64(key), "revision": str(revision)}
        found = read_items(await self.call("/v3/kv/range", body, deadline))
        return found[0] if found else None

    async def page(
        self, prefix: str, *, after: str = "", limit: int = 0, keys_only: bool = False, deadline: float = 8.0
    ) -> Page:
        """Keys that begin with the prefix, in order; `after` is the `last` of the page before."""
        first = text64(f"{after}\0") if after else text64(prefix)
        body = {"key": first, "range_end": prefix_end(prefix), "limit": str(limit), "keys_only": keys_only}
        answer = await self.call("/v3/kv/range", body, deadline)
        items = read_items(answer)
        kept = [item for item in items if len(item.key) <= MAX_KEY]
        return Page(kept, revision_of(answer), bool(answer.get("more")), items[-1].key if items else "")

    async def transact(
        self,
        conditions: Sequence[dict[str, Any]],
        then: Sequence[dict[str, Any]],
        otherwise: Sequence[dict[str, Any]] = (),
        deadline: float = DEADLINE_SECONDS,
    ) -> Outcome:
        """All of `then` if every condition holds, else `otherwise`. The conditions must not hold again afterwards."""
        body = {"compare": list(conditions), "success": list(then), "failure": list(otherwise)}
        answer, attempts = await self.call_counted("/v3/kv/txn", body, deadline)
        responses = answer.get("responses", [])
        if not isinstance(responses, list):
            raise NoDatastore("an answer of the datastore cannot be read")
        return Outcome(bool(answer.get("succeeded")), responses, revision_of(answer), attempts)

    async def replace(
        self, key: str, value: bytes, before: Item | None, lease: int = 0, deadline: float = DEADLINE_SECONDS
    ) -> bool:
        """Write if nobody has since `before`.

        The value must be one that nobody else writes: a retry knows by it whether an earlier attempt of its own has
        been done, although others may have written since.
        """
        condition = unchanged(key, before.modified if before else 0)
        done = await self.transact([condition], [put_op(key, value, lease)], [get_op(key)], deadline)
        if done.succeeded or done.attempts == 1:
            return done.succeeded
        return await self._followed(before, done.items(), value, deadline)

    async def _followed(self, before: Item | None, now: list[Item], value: bytes, deadline: float) -> bool:
        """Whether what was written right after `before` is this value."""
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
        """Write over whatever is there, once."""
        loop = asyncio.get_running_loop()
        end = loop.time() + deadline
        while True:
            before = await self.get(key, max(0.05, end - loop.time()))
            if await self.replace(key, value, before, lease, max(0.05, end - loop.time())):
                return

    async def delete(self, key: str, before: Item | None = None) -> None:
        """Gone afterwards; with `before`, only if nobody has changed it since."""
        conditions = [unchanged(key, before.modified)] if before else []
        await self.transact(conditions, [delete_op(key)])

    async def delete_all(self, prefix: str) -> None:
        await self.call("/v3/kv/deleterange", {"key": text64(prefix), "range_end": prefix_end(prefix)})

    # Leases

    async def grant(self, seconds: int, deadline: float = DEADLINE_SECONDS) -> int:
        answer = await self.call("/v3/lease/grant", {"TTL": str(seconds)}, deadline)
        with readable("a lease of the datastore"):
            return int(answer["ID"])

    async def keep(self, lease: int, deadline: float = DEADLINE_SECONDS) -> bool:
        """Whether the lease still lives, now for its whole time again."""
        answer = await self.call("/v3/lease/keepalive", {"ID": str(lease)}, deadline)
        with readable("a lease of the datastore"):
            return int(answer.get("result", {}).get("TTL", 0)) > 0

    async def granted(self, lease: int, deadline: float = DEADLINE_SECONDS) -> int:
        """For how many seconds the lease was granted; 0 for one that is gone."""
        answer = await self.call("/v3/lease/timetolive", {"ID": str(lease)}, deadline)
        with readable("a lease of the datastore"):
            return int(answer.get("grantedTTL", 0))

    async def revoke(self, lease: int) -> None:
        with contextlib.suppress(Rejected):  # it is gone already
            await self.call("/v3/lease/revoke", {"ID": str(lease)}, deadline=2.0)

    # Watches

    async def watch(
        self, prefix: str, revision: int, patience: float = PATIENCE_SECONDS
    ) -> AsyncIterator[list[Change]]:
        """Every change below the prefix from `revision` on, each once and in order; an empty list now and then.

        Raises Compacted when the datastore no longer has what comes next.
        """
        for turn in itertools.count():
            order = self._order()
            if not order:
                await asyncio.sleep(1.0)
                yield []
                continue
            try:
                async for changes, seen in self._watch_at(order[turn % len(order)], prefix, revision, patience):
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
        wish = {"key": text64(prefix), "range_end": prefix_end(prefix), "start_revision": str(revision)}
        body = {"create_request": {**wish, "progress_notify": True}}
        url = f"{endpoint}/v3/watch"
        async with self._http.stream("POST", url, json=body, headers=_NEEDS_LEADER, timeout=patience) as response:
            lines = _lines(response, endpoint)
            while True:
                async with asyncio.timeout(patience):
                    line = await anext(lines, None)
                if line is None:
                    return
                with readable(f"what {endpoint} tells of changes"):
                    news = _read_news(line)
                if news is None:
                    return
                if news[0] or news[1]:
                    yield news


async def _bounded(response: httpx.Response, endpoint: str) -> bytes:
    """The whole answer, if it is not longer than any could be."""
    parts, size = [], 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > MAX_ANSWER:
            raise NoDatastore(f"{endpoint} answered with more than {MAX_ANSWER >> 20} MB")
        parts.append(part)
    return b"".join(parts)


async def _lines(response: httpx.Response, endpoint: str) -> AsyncIterator[bytes]:
    """The lines of an answer that goes on, none longer than an answer may be."""
    rest: list[bytes] = []
    size = 0
    async for part in response.aiter_bytes():
        first, *others = part.split(b"\n")
        rest.append(first)
        size += len(first)
        for begun in others:
            yield b"".join(rest)
            rest, size = [begun], len(begun)
        if size > MAX_ANSWER:
            raise NoDatastore(f"{endpoint} tells of changes in lines of more than {MAX_ANSWER >> 20} MB")


def _read_news(line: bytes) -> tuple[list[Change], int] | None:
    """The changes in a line of a watch and the revision up to which all is told; None if the watch is over."""
    result = json.loads(line).get("result", {}) if line.strip() else {}
    if int(result.get("compact_revision", 0)):
        raise Compacted(int(result["compact_revision"]))
    if result.get("canceled") or b"error" in line[:12]:
        return None
    changes = [_change(event) for event in result.get("events", ())]
    if changes:
        return changes, changes[-1].item.modified
    # A sign of life: everything up to this revision has been told.
    return [], 0 if result.get("created") else int(result.get("header", {}).get("revision", 0))


def read_answer(endpoint: str, status: int, content: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError) as problem:
        raise NoDatastore(f"{endpoint} answered {status} and no JSON") from problem
    if not isinstance(answer, dict):
        raise NoDatastore(f"{endpoint} answered {status} and no JSON object")
    if status == 200 and "error" not in answer:
        return dict(answer)
    said = answer.get("error", answer)
    told = str(said.get("message") if isinstance(said, dict) else said)
    code = answer.get("code", said.get("grpc_code") if isinstance(said, dict) else None)
    if code in _AGAIN or status in (502, 503, 504):
        raise NoDatastore(f"{endpoint}: {told}")
    raise Rejected(told)


def _told(problem: BaseException, seconds: float) -> str:
    return f"no answer in {seconds:.1f} s" if isinstance(problem, TimeoutError) else str(problem) or repr(problem)


def read_items(answer: dict[str, Any]) -> list[Item]:
    with readable("an answer of the datastore"):
        return [_item(entry) for entry in answer.get("kvs", ())]


def _item(entry: dict[str, Any]) -> Item:
    return Item(
        b64decode(entry["key"]).decode(errors="surrogateescape"),
        b64decode(entry.get("value", "")),
        int(entry.get("create_revision", 0)),
        int(entry.get("mod_revision", 0)),
        int(entry.get("version", 0)),
        int(entry.get("lease", 0)),
    )


def _change(event: dict[str, Any]) -> Change:
    return Change(_item(event["kv"]), event.get("type") == "DELETE")
