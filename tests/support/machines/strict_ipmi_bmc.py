"""A BMC that speaks cipher suite 17 and no other, and keeps what it is told bit by bit: as much of IPMI 2.0 as it takes
to log in, to switch power and to choose what is booted. OpenIPMI's simulator can do neither.

The numbers are those of the specification: RMCP+ in 13.6, RAKP in 13.17 to 13.24 and 13.28, boot options in 28.13.
"""

import asyncio
import hashlib
import hmac
import os
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

RMCP = bytes((6, 0, 0xFF, 7))
OPEN, OPENED, RAKP_1, RAKP_2, RAKP_3, RAKP_4 = range(0x10, 0x16)
IN_SESSION = 0xC0
"""An IPMI message, encrypted and signed."""
SUITE_17 = (3, 4, 1)
NO_SUITE, NO_SUCH_NAME, NO_SUCH_ROLE, BAD_CHECK = 0x11, 0x0D, 0x0A, 0x0F
UNKNOWN_COMMAND, BAD_FIELD = 0xC1, 0xCC
GUID = bytes(range(16))
OPERATOR = 3


def _sign(key: bytes, *parts: bytes) -> bytes:
    return hmac.digest(key, b"".join(parts), hashlib.sha256)


def _with_sum(part: bytes) -> bytes:
    return part + bytes((-sum(part) & 0xFF,))


@dataclass
class _Session:
    console: bytes
    own: bytes
    rand_console: bytes = b""
    rand_own: bytes = field(default_factory=lambda: os.urandom(16))
    who: bytes = b""
    """Role, length of the name, and name, as they are signed."""
    key: bytes = b""
    sent: int = 0

    @property
    def signing(self) -> bytes:
        return _sign(self.key, b"\1" * 20)

    @property
    def cipher(self) -> "algorithms.AES":
        return algorithms.AES(_sign(self.key, b"\2" * 20)[:16])


class StrongBmc(asyncio.DatagramProtocol):
    def __init__(self, user: str, password: str, level: int) -> None:
        self._user, self._password, self._level = user.encode(), password.encode(), level
        self._sessions: dict[bytes, _Session] = {}
        self.on = False
        self.controls: list[int] = []
        """Chassis Control: 0 off, 1 on, 3 reset."""
        self.boot_options: dict[int, bytes] = {}
        self.keeps_boot_device = True

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.address = "{}:{}".format(*transport.get_extra_info("sockname"))

    def datagram_received(self, message: bytes, client: tuple[str, int]) -> None:
        if message[4] != 6:  # from before a session, as in IPMI 1.5: only what this BMC can do is asked like that
            self._transport.sendto(self._capabilities(message[14:]), client)
            return
        kind, session_id, length = message[5], message[6:10], struct.unpack_from("<H", message, 14)[0]
        payload = message[16 : 16 + length]
        steps = {OPEN: self._opened, RAKP_1: self._rakp_2, RAKP_3: self._rakp_4}
        if kind in steps:
            answer = steps[kind](payload)
            self._transport.sendto(RMCP + struct.pack("<BB8xH", 6, kind + 1, len(answer)) + answer, client)
        elif kind == IN_SESSION:
            self._transport.sendto(self._in_session(self._sessions[session_id], message, payload), client)

    def _capabilities(self, request: bytes) -> bytes:
        answer = _answer(request, bytes((0, 1, 0x80, 4, 2, 0, 0, 0, 0)))  # it speaks IPMI 2.0, and nobody is nameless
        return RMCP + bytes(9) + bytes((len(answer),)) + answer

    # --- logging in

    def _opened(self, payload: bytes) -> bytes:
        tag, console = payload[:1], payload[4:8]
        if (payload[12], payload[20], payload[28]) != SUITE_17:
            return tag + bytes((NO_SUITE, 0, 0)) + console
        session = _Session(console, os.urandom(4))
        self._sessions[session.own] = session
        return tag + bytes((0, self._level, 0)) + console + session.own + payload[8:32]

    def _rakp_2(self, payload: bytes) -> bytes:
        tag, session, role, name = payload[:1], self._sessions[payload[4:8]], payload[24] & 0xF, payload[28:]
        wrong = NO_SUCH_NAME if name != self._user else NO_SUCH_ROLE if role > self._level else 0
        if wrong:
            return tag + bytes((wrong, 0, 0)) + session.console
        session.rand_console, session.who = payload[8:24], payload[24:25] + payload[27:]
        randoms = session.rand_console + session.rand_own
        proof = _sign(self._password, session.console, session.own, randoms, GUID, session.who)
        return tag + bytes(3) + session.console + session.rand_own + GUID + proof

    def _rakp_4(self, payload: bytes) -> bytes:
        tag, session = payload[:1], self._sessions[payload[4:8]]
        if payload[8:] != _sign(self._password, session.rand_own, session.console, session.who):
            return tag + bytes((BAD_CHECK, 0, 0)) + session.console
        session.key = _sign(self._password, session.rand_console, session.rand_own, session.who)
        return tag + bytes(3) + session.console + _sign(session.key, session.rand_console, session.own, GUID)[:16]

    # --- what is said then

    def _in_session(self, session: _Session, message: bytes, payload: bytes) -> bytes:
        assert message[-16:] == _sign(session.signing, message[4:-16])[:16], "signed by whoever logged in"
        decryptor = Cipher(session.cipher, modes.CBC(payload[:16])).decryptor()
        plain = decryptor.update(payload[16:]) + decryptor.finalize()
        request = plain[: -plain[-1] - 1]
        answer = _answer(request, self._do(request[1] >> 2, request[5], request[6:-1]))
        padding = -(len(answer) + 1) % 16
        start = os.urandom(16)
        encryptor = Cipher(session.cipher, modes.CBC(start)).encryptor()
        padded = answer + bytes(range(1, padding + 1)) + bytes((padding,))
        sealed = start + encryptor.update(padded) + encryptor.finalize()
        session.sent += 1
        head = struct.pack("<BB4sIH", 6, IN_SESSION, session.console, session.sent, len(sealed))
        filling = -(len(head) + len(sealed) + 2) % 4
        signed = head + sealed + b"\xff" * filling + bytes((filling, 7))
        return RMCP + signed + _sign(session.signing, signed)[:16]

    def _do(self, function: int, command: int, told: bytes) -> bytes:
        """Completion code, and what comes with it."""
        match function, command:
            case 0x06, 0x3B:  # Set Session Privilege Level
                return bytes((0, told[0]))
            case 0x06, 0x3C:  # Close Session
                return bytes(1)
            case 0x00, 0x01:  # Get Chassis Status
                return bytes((0, self.on, 0, 0))
            case 0x00, 0x02:  # Chassis Control
                self.controls.append(told[0])
                self.on = told[0] != 0
                return bytes(1)
            case 0x00, 0x08:  # Set System Boot Options
                if told[0] == 3 and not self.keeps_boot_device:
                    return bytes((BAD_FIELD,))
                self.boot_options[told[0]] = told[1:]
                return bytes(1)
            case 0x00, 0x09:  # Get System Boot Options
                return bytes((0, 1, told[0])) + self.boot_options.get(told[0], bytes(5))
        return bytes((UNKNOWN_COMMAND,))


def _answer(request: bytes, answer: bytes) -> bytes:
    """To a message, from the one it was for to the one it was from."""
    back = _with_sum(bytes((request[3], request[1] | 4)))
    return back + _with_sum(bytes((request[0], request[4], request[5])) + answer)


@asynccontextmanager
async def strong_bmc(user: str, password: str, level: int = OPERATOR) -> AsyncIterator[StrongBmc]:
    loop = asyncio.get_running_loop()
    transport, made = await loop.create_datagram_endpoint(
        lambda: StrongBmc(user, password, level), local_addr=("127.0.0.1", 0)
    )
    try:
        yield made
    finally:
        transport.close()
