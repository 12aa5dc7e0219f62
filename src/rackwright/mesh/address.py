"""An address as people write it: HOST or HOST:PORT, with brackets around IPv6 where a port follows."""

from typing import NamedTuple

from rackwright.mesh.errors import BadSettings

PORT = 7946


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, port: int = PORT) -> Address:
    text = text.strip()
    host, colon, tail = text.rpartition(":")
    bare_ipv6 = ":" in host and not host.endswith("]")
    if not colon or bare_ipv6 or text.endswith("]"):
        host, colon, tail = text, "", str(port)
    host = host.removeprefix("[").removesuffix("]")
    odd = not host or any(letter.isspace() or letter in "/@[]" for letter in host)
    if odd or not (tail.isdecimal() and 0 < int(tail) < 65536):
        raise BadSettings(f"{text!r} is not an address; write HOST or HOST:PORT, with [brackets] around IPv6")
    return Address(host, int(tail))
