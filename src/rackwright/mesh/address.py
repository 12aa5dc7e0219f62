"""Network addresses as people write them: HOST or HOST:PORT, with brackets around IPv6 where a port follows."""

from typing import NamedTuple

from rackwright.mesh.errors import BadSettings

PORT = 7946
"""The port of an agent unless another is given."""


class Address(NamedTuple):
    """A host (name or IP address) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, port: int = PORT) -> Address:
    """Return the address in a text; `port` is used if the text names none."""
    text = text.strip()
    host, colon, port_text = text.rpartition(":")
    bare_ipv6 = ":" in host and not host.endswith("]")
    if not colon or bare_ipv6 or text.endswith("]"):
        host, colon, port_text = text, "", str(port)
    host = host.removeprefix("[").removesuffix("]")
    is_malformed = not host or any(letter.isspace() or letter in "/@[]" for letter in host)
    if is_malformed or not (port_text.isdecimal() and 0 < int(port_text) < 65536):
        raise BadSettings(f"{text!r} is not an address; write HOST or HOST:PORT, with [brackets] around IPv6")
    return Address(host, int(port_text))
