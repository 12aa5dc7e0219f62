"""Requests of TFTP, and a transport that keeps what is answered: for tests that need no socket."""

import asyncio


def request(name: str, mode: str = "octet", **options: str) -> bytes:
    words = [name, mode, *(word for pair in options.items() for word in pair)]
    return b"\0\1" + b"".join(word.encode() + b"\0" for word in words)


class Sent(asyncio.DatagramTransport):
    """Counts what is sent, to whom."""

    def __init__(self) -> None:
        super().__init__()
        self.to: list[str] = []

    def sendto(self, data: object, addr: tuple[str, int] | None = None) -> None:  # type: ignore[override]
        assert addr is not None
        self.to.append(addr[0])
