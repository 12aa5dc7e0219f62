"""Challenges for machines that register: each is signed by us, holds for a short while, and can be used once.

A challenge is not stored when it is given out, so that whoever asks for many fills nothing. It says itself until when
it holds, sealed with a key that all servers of a database share: what one gave out any of them takes. What was used is
remembered until it would not hold any more. Times are the database's, since servers' clocks differ.
"""

import base64
import hmac
import secrets

from psycopg.types.json import Jsonb

from rackwright.domain.errors import Conflict, Invalid, Rule
from rackwright.store.db.session import Session

CHALLENGE_SECONDS = 120
KEY = "challenge_key"
"""The setting that has the key of the seal."""

_RANDOM, _TIME, _SEAL = 16, 8, 32
FORGET_AT_ONCE = 1000


async def issue_challenge(session: Session) -> str:
    """Return a new challenge."""
    ends = await session.value(
        "SELECT CAST(extract(epoch FROM now()) AS bigint) + CAST(:seconds AS bigint)", seconds=CHALLENGE_SECONDS
    )
    content = int(ends).to_bytes(_TIME, "big") + secrets.token_bytes(_RANDOM)
    return base64.urlsafe_b64encode(content + _seal(await _key(session), content)).decode()


async def spend_challenge(session: Session, challenge: str) -> None:
    """Use a challenge up; refuse one that is not ours, too old, or used before.

    What is remembered is a few bytes for each registration of the last two minutes that was rightly signed.
    """
    content = await _opened(session, challenge)
    now = await session.value("SELECT extract(epoch FROM now())")
    if int.from_bytes(content[:_TIME], "big") < now:
        raise Invalid(
            f"This challenge is older than {CHALLENGE_SECONDS} seconds. Ask for a new one, and sign that.", "/challenge"
        )
    await session.run(
        "DELETE FROM spent_challenges WHERE challenge IN (SELECT challenge FROM spent_challenges"
        " WHERE ends_at < now() ORDER BY ends_at LIMIT :limit FOR UPDATE SKIP LOCKED)",
        limit=FORGET_AT_ONCE,
    )
    fresh = await session.run(
        "INSERT INTO spent_challenges (challenge, ends_at) VALUES (:challenge, now() + :seconds * interval '1 second')"
        " ON CONFLICT DO NOTHING",
        challenge=content,
        seconds=2 * CHALLENGE_SECONDS,
    )
    if not fresh:
        raise Conflict(Rule.BUSY, "This challenge was used before. Ask for a new one, and sign that.")


async def _opened(session: Session, challenge: str) -> bytes:
    """What a challenge says, if we have sealed it."""
    try:
        whole = base64.b64decode(challenge, altchars=b"-_", validate=True)
    except ValueError:
        whole = b""
    content, seal = whole[: _TIME + _RANDOM], whole[_TIME + _RANDOM :]
    if len(whole) != _TIME + _RANDOM + _SEAL or not hmac.compare_digest(seal, _seal(await _key(session), content)):
        raise Invalid("This challenge was not given out here. Ask for one, and sign that.", "/challenge")
    return content


def _seal(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, "sha256")


async def _key(session: Session) -> bytes:
    """The key that all servers of this database share; drawn once."""
    known = await session.value("SELECT value #>> '{}' FROM settings WHERE name = :name", name=KEY)
    if known is None:
        await session.run(
            "INSERT INTO settings (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING",
            name=KEY,
            value=Jsonb(secrets.token_hex(32)),
        )
        known = await session.value("SELECT value #>> '{}' FROM settings WHERE name = :name", name=KEY)
    return bytes.fromhex(str(known))
