"""Limits and clean-up for data from outside (machines, and the scripts and states on them), before it is stored.

Pure. Text that PostgreSQL does not take, documents nested too deep to be walked, and made-up seals are found here, so
that their sender gets the error and nobody else meets it later.
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
    """Return the text in a form that the database can store, cut off at `longest` characters.

    Characters that no database stores are replaced with visible ones.
    """
    if longest is not None and len(text) > longest:
        text = f"{text[:longest]} ..."
    if "\0" in text:
        text = text.replace("\0", _NUL_SHOWN)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def check_foreign_document(document: Json) -> None:
    """Refuse a document that cannot be stored and shown again, or that carries a seal: only the server seals."""
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
                characters += sum(_checked_length(key) for key in value)
            elif isinstance(value, list):
                below.extend(value)
            elif isinstance(value, str):
                characters += _checked_length(value)
            elif isinstance(value, float) and not math.isfinite(value):
                raise Invalid(f"It has the number {value}, which JSON has not.")
        if characters > LARGEST or values + len(below) > MOST_VALUES:
            raise Invalid(f"It is larger than {LARGEST} characters or {MOST_VALUES} values.")
        level = below


def _checked_length(text: str) -> int:
    """Return the length of a text; raise Invalid if it has characters that cannot be stored."""
    if "\0" in text or (not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)):
        raise Invalid("It has text with a NUL or half a surrogate pair in it, which is no text.")
    return len(text)
