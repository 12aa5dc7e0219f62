"""Challenges for machines that register: each is signed by us, is valid for a short while, and can be used once.

A challenge is not stored when it is given out, so that a client that asks for many fills nothing. It carries the time
until which it is valid, sealed with a key that all servers of a database share: any server takes what another gave out.
A used challenge is remembered until it would not be valid any more. Times are the database's, since servers' clocks
differ.
"""

import base64
import hmac
import secrets

from psycopg.types.json import Jsonb

from rackwright.domain.errors import Conflict, Invalid, Rule
from rackwright.store.db.session import Session

CHALLENGE_SECONDS = 120
KEY_SETTING = "challenge_key"
"""The setting that holds the key of the seal."""

_RANDOM, _TIME, _SEAL = 16, 8, 32
MAX_FORGOTTEN_AT_ONCE = 1000


async def issue_challenge(session: Session) -> str:
    """Return a new challenge."""
    end = await session.value(
        "SELECT CAST(extract(epoch FROM now()) AS bigint) + CAST(:seconds AS bigint)", seconds=CHALLENGE_SECONDS
    )
    content = int(end).to_bytes(_TIME, "big") + secrets.token_bytes(_RANDOM)
    return base64.urlsafe_b64encode(content + _compute_seal(await _read_key(session), content)).decode()


async def spend_challenge(session: Session, challenge: str) -> None:
    """Use a challenge up; refuse one that is not ours, too old, or used before.

    What is stored is a few bytes for each rightly signed registration of the last two minutes.
    """
    content = await _open_challenge(session, challenge)
    now = await session.value("SELECT extract(epoch FROM now())")
    if int.from_bytes(content[:_TIME], "big") < now:
        raise Invalid(
            f"This challenge is older than {CHALLENGE_SECONDS} seconds. Ask for a new one, and sign that.", "/challenge"
        )
    await session.run(
        "DELETE FROM spent_challenges WHERE challenge IN (SELECT challenge FROM spent_challenges"
        " WHERE ends_at < now() ORDER BY ends_at LIMIT :limit FOR UPDATE SKIP LOCKED)",
        limit=MAX_FORGOTTEN_AT_ONCE,
    )
    inserted = await session.run(
        "INSERT INTO spent_challenges (challenge, ends_at) VALUES (:challenge, now() + :seconds * interval '1 second')"
        " ON CONFLICT DO NOTHING",
        challenge=content,
        seconds=2 * CHALLENGE_SECONDS,
    )
    if not inserted:
        raise Conflict(Rule.BUSY, "This challenge was used before. Ask for a new one, and sign that.")


async def _open_challenge(session: Session, challenge: str) -> bytes:
    """Return the content of a challenge; refuse one that we have not sealed."""
    try:
        decoded = base64.b64decode(challenge, altchars=b"-_", validate=True)
    except ValueError:
        decoded = b""
    content, seal = decoded[: _TIME + _RANDOM], decoded[_TIME + _RANDOM :]
    if len(decoded) != _TIME + _RANDOM + _SEAL or not hmac.compare_digest(
        seal, _compute_seal(await _read_key(session), content)
    ):
        raise Invalid("This challenge was not given out here. Ask for one, and sign that.", "/challenge")
    return content


def _compute_seal(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, "sha256")


async def _read_key(session: Session) -> bytes:
    """Return the key that all servers of this database share; it is drawn once."""
    key = await session.value("SELECT value #>> '{}' FROM settings WHERE name = :name", name=KEY_SETTING)
    if key is None:
        await session.run(
            "INSERT INTO settings (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING",
            name=KEY_SETTING,
            value=Jsonb(secrets.token_hex(32)),
        )
        key = await session.value("SELECT value #>> '{}' FROM settings WHERE name = :name", name=KEY_SETTING)
    return bytes.fromhex(str(key))
