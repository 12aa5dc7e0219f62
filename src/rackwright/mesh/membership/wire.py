"""The basic parts of the wire format: length-prefixed text and bytes, encoded and strictly read.

No message is known here.
"""

import struct

_U16 = struct.Struct("!H")
_U64 = struct.Struct("!Q")
MAX_BLOB = 512


class BadMessage(ValueError):
    """Bytes that are no message, or a message that may not travel."""


def encode_text(value: str, *, wide: bool = False) -> bytes:
    """Return a text with its length before it: one byte, or two (`wide`) where 255 is not enough."""
    encoded = value.encode("ascii")
    return (_U16.pack(len(encoded)) if wide else bytes([len(encoded)])) + encoded


def encode_blob(value: bytes) -> bytes:
    """Return bytes with their length before them."""
    return _U16.pack(len(value)) + value


class Reader:
    """Reads what the functions above encoded. Every step checks first that the bytes are there."""

    __slots__ = ("_encoded", "_position")

    def __init__(self, encoded: bytes) -> None:
        self._encoded = encoded
        self._position = 0

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        end = self._position + count
        if end > len(self._encoded):
            raise BadMessage(
                f"cut short: {count} bytes expected at {self._position}, {len(self._encoded) - self._position} there"
            )
        taken = self._encoded[self._position : end]
        self._position = end
        return taken

    def u8(self) -> int:
        return self.take(1)[0]

    def u16(self) -> int:
        value: int = _U16.unpack(self.take(2))[0]
        return value

    def u64(self, limit: int | None = None) -> int:
        value: int = _U64.unpack(self.take(8))[0]
        if limit is not None and value > limit:
            raise BadMessage(f"number {value} is over its limit {limit}")
        return value

    def text(self, *, wide: bool = False) -> str:
        encoded = self.take(self.u16() if wide else self.u8())
        try:
            return encoded.decode("ascii")
        except UnicodeDecodeError as error:
            raise BadMessage(
                f"text with a byte that is not ASCII at {self._position - len(encoded) + error.start}"
            ) from error

    def blob(self) -> bytes:
        length = self.u16()
        if length > MAX_BLOB:
            raise BadMessage(f"{length} bytes of metadata, at most {MAX_BLOB} are read")
        return self.take(length)

    @property
    def at_end(self) -> bool:
        return self._position == len(self._encoded)

    def end(self) -> None:
        """Raise BadMessage if bytes are left."""
        if not self.at_end:
            raise BadMessage(f"{len(self._encoded) - self._position} bytes too many after the message")
