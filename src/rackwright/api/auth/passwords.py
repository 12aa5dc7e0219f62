"""Passwords: hashed with argon2, off the event loop, a few at a time, because each takes memory and a core for a while.

Guessing is made slow twice: a source has so many failures for each name and so many in all, and then waits; and all
failures for one name slow the next answers down, from wherever they come. Nobody is locked out by what others do: a
name as such has no limit, because whoever can reach the server could use it up.
"""

import asyncio
import math

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from rackwright.api.auth.limits import Bucket, TooMany, source_network
from rackwright.domain.errors import Invalid

AT_ONCE = 2
WAITING = 32
"""Logins that may wait for their turn; more are turned away, or a flood of them would keep everybody out for long."""
SLOWED = 2.0
"""Seconds a wrong password waits for its answer when there were many for that name lately, from anywhere."""
SHORTEST = 12
LONGEST = 256


class LoginLimited(TooMany):
    """Too many failed logins. Wait."""

    type = "too-many-logins"

    def __init__(self, seconds: float) -> None:
        self.retry_after = max(1, math.ceil(seconds))
        super().__init__(f"Too many failed logins. Wait {self.retry_after} s, then try again.")


def check_password(password: str, name: str, pointer: str = "/password") -> None:
    """Long is strong; composition rules only make people write it down."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise Invalid(f"A password has {SHORTEST} to {LONGEST} characters.", pointer)
    if name in password.lower() and len(password) < SHORTEST + len(name):
        raise Invalid("The password is little more than the user's name.", pointer)
    if len(set(password)) < 5:
        raise Invalid("The password repeats itself; use more different characters.", pointer)


class Passwords:
    """Hashes and verifies; and counts who fails."""

    def __init__(self) -> None:
        self.hasher = PasswordHasher()
        self._places = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0
        self._nobody = ""
        self.addresses = Bucket(rate=1 / 10, burst=20)
        self.pairs = Bucket(rate=1 / 10, burst=10)
        """By name and source."""
        self.names = Bucket(rate=1 / 10, burst=10)
        """Never refuses; what it would have refused waits its turn behind others."""

    async def hash(self, password: str) -> str:
        async with self._places:
            return await asyncio.to_thread(self.hasher.hash, password)

    async def verify(self, hash: str | None, password: str) -> bool:
        """Whether it is the one. None: there is no such user, which takes as long to find out."""
        if self._waiting >= WAITING:
            raise LoginLimited(5)
        self._waiting += 1
        try:
            if not self._nobody:
                self._nobody = await self.hash("nobody's password")
            async with self._places:
                right = await asyncio.to_thread(self._verify, hash or self._nobody, password)
        finally:
            self._waiting -= 1
        return right and hash is not None

    def _verify(self, hash: str, password: str) -> bool:
        try:
            return self.hasher.verify(hash, password)
        except (VerificationError, InvalidHashError):
            return False

    def attempt(self, name: str, address: str) -> None:
        """Counts one try; `succeeded` takes it back."""
        source = source_network(address)
        wait = max(self.pairs.wait(_pair(name, source)), self.addresses.wait(source))
        if wait > 0:
            raise LoginLimited(wait)
        self.pairs.take(_pair(name, source))
        self.addresses.take(source)

    def succeeded(self, name: str, address: str) -> None:
        source = source_network(address)
        self.pairs.give_back(_pair(name, source))
        self.addresses.give_back(source)

    def slow_down(self, name: str) -> float:
        """Seconds that the answer to a wrong password for this name is kept back: the more there were, the longer."""
        return 0.0 if self.names.take(name) else SLOWED


def _pair(name: str, source: str) -> str:
    return f"{source} {name}"
