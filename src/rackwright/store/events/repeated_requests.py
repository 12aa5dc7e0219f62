"""Requests that may be sent twice and must be done once: the key of each, and the answer that was given.

The key is claimed and the answer kept in the transaction of the change itself. A second request with the same key waits
for the first to commit, and then finds its answer; if the first failed, nothing was kept and the second does the work.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from psycopg.types.json import Jsonb

from rackwright.domain.errors import RackwrightError
from rackwright.store.db.session import Session

KEPT_SECONDS = 86400.0
KEPT = f"interval '{KEPT_SECONDS:g} seconds'"


class KeyReused(RackwrightError):
    """This Idempotency-Key was used for another request already. Use a new key for a new request."""

    status = 422
    type = "idempotency-key-reused"


@dataclass(frozen=True)
class KeptAnswer:
    status: int
    headers: Mapping[str, str]
    body: bytes


async def claim_key(session: Session, owner: str, key: str, request: bytes) -> KeptAnswer | None:
    """The answer that this request got before; None: it is ours to do."""
    await session.run(_FORGET)
    claimed = await session.run(
        f"""
        INSERT INTO kept_answers AS k (owner, key, request) VALUES (:owner, :key, :request)
        ON CONFLICT (owner, key) DO UPDATE SET request = excluded.request, status = NULL, at = now()
        WHERE k.at < now() - {KEPT}
        """,
        owner=owner,
        key=key,
        request=request,
    )
    if claimed:
        return None
    kept = await kept_answer(session, owner, key, request)
    assert kept is not None, "what kept us from claiming the key is committed"
    return kept


async def kept_answer(session: Session, owner: str, key: str, request: bytes) -> KeptAnswer | None:
    """The answer that this request got before, if it did."""
    kept = await session.row(
        "SELECT request, status, headers, body FROM kept_answers"
        f" WHERE owner = :owner AND key = :key AND at > now() - {KEPT}",
        owner=owner,
        key=key,
    )
    if kept is None:
        return None
    if bytes(kept.request) != request:
        raise KeyReused
    return KeptAnswer(kept.status, kept.headers, bytes(kept.body))


async def keep_answer(session: Session, owner: str, key: str, answer: KeptAnswer) -> None:
    await session.run(
        "UPDATE kept_answers SET status = :status, headers = :headers, body = :body"
        " WHERE owner = :owner AND key = :key",
        owner=owner,
        key=key,
        status=answer.status,
        headers=Jsonb(dict(answer.headers)),
        body=answer.body,
    )


# What somebody else is just looking at is left to the next one: no request waits for another's old keys.
_FORGET = f"""
DELETE FROM kept_answers WHERE (owner, key) IN (
    SELECT owner, key FROM kept_answers WHERE at < now() - {KEPT} ORDER BY at LIMIT 100 FOR UPDATE SKIP LOCKED)
"""
