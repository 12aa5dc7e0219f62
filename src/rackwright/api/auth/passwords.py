"""Passwords: hashed with argon2, off the event loop, a few at a time, because each takes memory and a core for a while.

Guessing is made slow in two ways: a source may fail so often for each name and so often in all, and then has to wait;
and many failures for one name delay the next answers, whatever source they come from. Nobody is locked out by what
others do: a name as such has no limit, because anybody who can reach the server could use it up.
"""

import asyncio
import math

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from rackwright.api.auth.limits import Bucket, TooMany
from rackwright.domain.errors import Invalid
from rackwright.domain.networks.source_networks import source_network

HASHES_AT_ONCE = 2
MOST_WAITING = 32
"""Logins that may wait for their turn. More are turned away: else a flood of them would keep everybody out for long."""
DELAY = 2.0
"""Seconds by which the answer to a wrong password is delayed after many for that name lately, from anywhere."""
SHORTEST_PASSWORD = 12
LONGEST_PASSWORD = 256


class LoginLimited(TooMany):
    """Too many failed logins. Wait."""

    type = "too-many-logins"

    def __init__(self, seconds: float) -> None:
        self.retry_after = max(1, math.ceil(seconds))
        super().__init__(f"Too many failed logins. Wait {self.retry_after} s, then try again.")


def check_password(password: str, name: str, pointer: str = "/password") -> None:
    """Refuse a password that is too weak.

    A long password is a strong one; rules about its characters only make people write it down.
    """
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise Invalid(f"A password has {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters.", pointer)
    if name in password.lower() and len(password) < SHORTEST_PASSWORD + len(name):
        raise Invalid("The password is little more than the user's name.", pointer)
    if len(set(password)) < 5:
        raise Invalid("The password repeats itself; use more different characters.", pointer)


class Passwords:
    """Hashes and verifies passwords, and counts failed logins."""

    def __init__(self) -> None:
        self.hasher = PasswordHasher()
        self._slots = asyncio.Semaphore(HASHES_AT_ONCE)
        self._waiting = 0
        self._dummy_hash = ""
        self.addresses = Bucket(rate=1 / 10, burst=20)
        self.pairs = Bucket(rate=1 / 10, burst=10)
        """By name and source."""
        self.names = Bucket(rate=1 / 10, burst=10)
        """Never refuses a login; answers to the attempts it has no token for are delayed."""

    async def hash(self, password: str) -> str:
        async with self._slots:
            return await asyncio.to_thread(self.hasher.hash, password)

    async def verify(self, hash: str | None, password: str) -> bool:
        """Return whether the password is the one of the hash.

        `hash` None: there is no such user, which takes as long to find out.
        """
        if self._waiting >= MOST_WAITING:
            raise LoginLimited(5)
        self._waiting += 1
        try:
            if not self._dummy_hash:
                self._dummy_hash = await self.hash("nobody's password")
            async with self._slots:
                matches = await asyncio.to_thread(self._verify, hash or self._dummy_hash, password)
        finally:
            self._waiting -= 1
        return matches and hash is not None

    def _verify(self, hash: str, password: str) -> bool:
        try:
            return self.hasher.verify(hash, password)
        except (VerificationError, InvalidHashError):
            return False

    def count_attempt(self, name: str, address: str) -> None:
        """Count one attempt to log in, or refuse it; `count_success` takes the count back."""
        source = source_network(address)
        wait = max(self.pairs.wait(_name_and_source(name, source)), self.addresses.wait(source))
        if wait > 0:
            raise LoginLimited(wait)
        self.pairs.take(_name_and_source(name, source))
        self.addresses.take(source)

    def count_success(self, name: str, address: str) -> None:
        """Take back what `count_attempt` counted."""
        source = source_network(address)
        self.pairs.give_back(_name_and_source(name, source))
        self.addresses.give_back(source)

    def delay_after_failure(self, name: str) -> float:
        """Return the seconds by which the answer to a wrong password for this name is delayed."""
        return 0.0 if self.names.take(name) else DELAY


def _name_and_source(name: str, source: str) -> str:
    return f"{source} {name}"
