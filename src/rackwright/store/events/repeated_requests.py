"""Requests that may be sent twice but must be done once: the key of each, and the response that was given.

The key is claimed and the response stored in the transaction of the change itself. A second request with the same key
waits for the first to commit, and then gets its response; if the first failed, nothing was stored and the second does
the work.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from psycopg.types.json import Jsonb

from rackwright.domain.errors import RackwrightError
from rackwright.store.db.session import Session

KEPT_SECONDS = 86400.0
KEPT_INTERVAL = f"interval '{KEPT_SECONDS:g} seconds'"


class KeyReused(RackwrightError):
    """This Idempotency-Key was used for another request already. Use a new key for a new request."""

    status = 422
    type = "idempotency-key-reused"


@dataclass(frozen=True)
class KeptResponse:
    status: int
    headers: Mapping[str, str]
    body: bytes


async def claim_key(session: Session, owner: str, key: str, request: bytes) -> KeptResponse | None:
    """Claim the key of a request; return the response that the request got before, or None: it is to be done now."""
    await session.run(_FORGET)
    claimed = await session.run(
        f"""
        INSERT INTO kept_answers AS k (owner, key, request) VALUES (:owner, :key, :request)
        ON CONFLICT (owner, key) DO UPDATE SET request = excluded.request, status = NULL, at = now()
        WHERE k.at < now() - {KEPT_INTERVAL}
        """,
        owner=owner,
        key=key,
        request=request,
    )
    if claimed:
        return None
    response = await read_kept_response(session, owner, key, request)
    assert response is not None, "the request that has the key is committed"
    return response


async def read_kept_response(session: Session, owner: str, key: str, request: bytes) -> KeptResponse | None:
    """Return the response that this request got before; None if it was not done yet."""
    stored = await session.row(
        "SELECT request, status, headers, body FROM kept_answers"
        f" WHERE owner = :owner AND key = :key AND at > now() - {KEPT_INTERVAL}",
        owner=owner,
        key=key,
    )
    if stored is None:
        return None
    if bytes(stored.request) != request:
        raise KeyReused
    return KeptResponse(stored.status, stored.headers, bytes(stored.body))


async def keep_response(session: Session, owner: str, key: str, response: KeptResponse) -> None:
    await session.run(
        "UPDATE kept_answers SET status = :status, headers = :headers, body = :body"
        " WHERE owner = :owner AND key = :key",
        owner=owner,
        key=key,
        status=response.status,
        headers=Jsonb(dict(response.headers)),
        body=response.body,
    )


# Rows that another request has locked are left to a later one: no request waits for another's old keys.
_FORGET = f"""
DELETE FROM kept_answers WHERE (owner, key) IN (
    SELECT owner, key FROM kept_answers WHERE at < now() - {KEPT_INTERVAL} ORDER BY at LIMIT 100 FOR UPDATE SKIP LOCKED)
"""
