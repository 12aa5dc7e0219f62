"""What comes from outside: machines, scripts and states on them. It is bounded and cleaned before it is stored.

Pure. Text that PostgreSQL does not take, documents nested too deep to be walked, and made-up seals are found here, so
that each is the fault of the one who sent it and nobody else meets it later.
"""

import math

from rackwright.domain.catalogue import Json
from rackwright.domain.errors import Invalid
from rackwright.domain.sealed import SEAL

DEEPEST = 25
LARGEST = 1024 * 1024
"""Characters of text, keys included, that a document may have in all."""
MOST_VALUES = 100_000
LONGEST_ERROR = 64 * 1024

_NUL_SHOWN = "\N{SYMBOL FOR NULL}"


def storable_text(text: str, longest: int | None = None) -> str:
    """The text with what no database stores shown instead, cut off at `longest` characters."""
    if longest is not None and len(text) > longest:
        text = f"{text[:longest]} ..."
    if "\0" in text:
        text = text.replace("\0", _NUL_SHOWN)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def check_foreign(document: Json) -> None:
    """Refuse a document that cannot be stored and shown again, or that carries a seal: secrets are sealed here."""
    characters = values = 0
    level, depth = [document], 0
    while level:
        if depth > DEEPEST:
            raise Invalid(f"It is nested more than {DEEPEST} levels deep.")
        depth += 1
        below: list[Json] = []
        for value in level:
            values += 1
            if isinstance(value, dict):
                if SEAL in value:
                    raise Invalid(f"It has a key {SEAL!r}. Give a secret in the clear; the server seals it.")
                below.extend(value.values())
                characters += sum(_length_of_text(key) for key in value)
            elif isinstance(value, list):
                below.extend(value)
            elif isinstance(value, str):
                characters += _length_of_text(value)
            elif isinstance(value, float) and not math.isfinite(value):
                raise Invalid(f"It has the number {value}, which JSON has not.")
        if characters > LARGEST or values + len(below) > MOST_VALUES:
            raise Invalid(f"It is larger than {LARGEST} characters or {MOST_VALUES} values.")
        level = below


def _length_of_text(text: str) -> int:
    if "\0" in text or (not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)):
        raise Invalid("It has text with a NUL or half a surrogate pair in it, which is no text.")
    return len(text)
