"""Masking: hiding the secrets of a run in its logs, errors and values. Pure.

A secret is found as it is, line by line if it has several lines, as JSON, shells and URLs write it, and in base64 at
any offset in what was encoded; and also where line ends were put into it. Text that comes in pieces is held back from
the first character on that may begin a secret.
"""

import json
from base64 import b64encode
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.sealed import MASK, is_sealed

SHORTEST = 4
"""Characters of the shortest secret that is hidden. A shorter text occurs in so much that is no secret that hiding it
would spoil every log."""
LONGEST_FORM = 4096
"""Characters that are searched for in one go; a longer secret is searched for in pieces."""
MOST_HELD_BACK = 4 * LONGEST_FORM
"""Characters, line ends included, that are held back. A script that puts more line ends into a secret could show it in
many other ways."""
MOST_LINES = 500
"""Lines of one secret that are searched for each by itself."""


def secret_texts(stored: Json, opened: Json) -> Iterator[str]:
    """Yield the texts of all secrets: what `opened` has where `stored` has a sealed value."""
    if is_sealed(stored):
        yield from _texts(opened)
    elif isinstance(stored, dict) and isinstance(opened, dict):
        for key, value in stored.items():
            yield from secret_texts(value, opened.get(key))


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


class Mask:
    """Hides a set of secrets in texts and values."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {piece for secret in secrets for form in _forms(secret) for piece in _pieces(form)}
        self._forms = sorted(forms)

    def __bool__(self) -> bool:
        return bool(self._forms)

    def text(self, text: str) -> str:
        """Return the text with its secrets hidden."""
        return self._replace(text, self._secret_ranges(_without_line_ends(text))) if self._forms else text

    def value(self, value: Json) -> Json:
        """Return the value with the secrets in all its texts and keys hidden."""
        if not self._forms:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self.value(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.value(inner) for inner in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            return MASK if str(value) in self._forms else value
        return value

    def split(self, text: str) -> tuple[str, str]:
        """Return the part of the text that can be shown, with its secrets hidden; and the end, maybe half a secret."""
        if not self._forms:
            return text, ""
        compact = _without_line_ends(text)
        ranges = self._secret_ranges(compact)
        held_from = self._unfinished_secret_start(compact)
        while ranges and ranges[-1][1] > held_from:  # that secret may be the beginning of a longer one
            held_from = min(held_from, ranges.pop()[0])
        position = _Positions(text).in_text(held_from) if held_from < len(compact) else len(text)
        if len(text) - position > MOST_HELD_BACK:
            return self.text(text), ""
        return self._replace(text[:position], ranges), text[position:]

    def _secret_ranges(self, compact: str) -> list[tuple[int, int]]:
        """Return the start and end of each secret in the text, in order; secrets that overlap are one range."""
        ranges: list[tuple[int, int]] = []
        for form in self._forms:
            start = compact.find(form)
            while start >= 0:
                ranges.append((start, start + len(form)))
                start = compact.find(form, start + len(form))
        merged: list[tuple[int, int]] = []
        for start, end in sorted(ranges):
            if merged and start < merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        return merged

    def _unfinished_secret_start(self, compact: str) -> int:
        """Return where the first secret may begin that does not end in this text; the text's length if none may."""
        first = len(compact)
        for form in self._forms:
            position = max(0, len(compact) - len(form) + 1)
            head = form[:SHORTEST]
            while 0 <= (position := compact.find(head, position)) < first:
                if form.startswith(compact[position:]):
                    first = position
                position += 1
            for length in range(SHORTEST - 1, 0, -1):
                start = len(compact) - length
                if 0 <= start < first and length < len(form) and form.startswith(compact[start:]):
                    first = start
        return first

    def _replace(self, text: str, ranges: list[tuple[int, int]]) -> str:
        """Return the text with a mask in place of each range; ranges count characters without line ends."""
        if not ranges:
            return text
        positions = _Positions(text)
        parts: list[str] = []
        end = 0
        for compact_start, compact_end in ranges:
            start = positions.in_text(compact_start)
            parts += (text[end:start], MASK)
            end = positions.in_text(compact_end - 1) + 1
            if "\n" in text[start:end]:
                parts.append("\n")
        return "".join([*parts, text[end:]])


class MaskedStream:
    """A text that comes in pieces, with its secrets hidden."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._held_back = ""

    def feed(self, text: str) -> str:
        """Take the next piece and return what can be shown by now."""
        shown, self._held_back = self._mask.split(self._held_back + text)
        return shown

    def end(self) -> str:
        """Return what was held back: nothing comes any more that would make it a secret."""
        shown, self._held_back = self._mask.text(self._held_back), ""
        return shown


def masked_wall(mask: Mask, wall: JsonObject, secret_paths: Iterable[tuple[str, ...]]) -> JsonObject:
    """Return the wall of a run with its secrets hidden, except at `secret_paths`.

    At those paths the role declares a secret, so the value there gets sealed.
    """
    if not mask:
        return wall
    return _masked_except(mask, wall, list(secret_paths))


def _masked_except(mask: Mask, values: JsonObject, secret_paths: list[tuple[str, ...]]) -> JsonObject:
    masked: JsonObject = {}
    for key, value in values.items():
        inner_paths = [path[1:] for path in secret_paths if path[:1] == (key,)]
        if () in inner_paths:
            masked[key] = value
        elif inner_paths and isinstance(value, dict):
            masked[mask.text(key)] = _masked_except(mask, value, inner_paths)
        else:
            masked[mask.text(key)] = mask.value(value)
    return masked


class _Positions:
    """Positions of a text without its line ends, converted to positions of the text itself."""

    def __init__(self, text: str) -> None:
        line_ends = [position for position, character in enumerate(text) if character in "\r\n"]
        self._before = [position - number for number, position in enumerate(line_ends)]
        """For each line end how many characters that are no line ends come before it."""

    def in_text(self, compact_position: int) -> int:
        return compact_position + bisect_left(self._before, compact_position + 1)


def _without_line_ends(text: str) -> str:
    return text.replace("\n", "").replace("\r", "")


def _forms(secret: str) -> Iterator[str]:
    """Yield all forms that a secret is searched for in, without line ends."""
    stripped = secret.strip()
    lines = {line.strip() for line in stripped.splitlines()}
    for text in {stripped, *(lines if len(lines) <= MOST_LINES else ())}:
        if len(text) < SHORTEST:
            continue
        written = {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], quote(text, safe="")}
        written |= {text.replace("'", "'\\''"), text.replace("'", "'\"'\"'")}
        yield from (_without_line_ends(form) for form in written)
        for encoded in _base64_forms(text.encode("utf-8", "replace")):
            yield encoded
            yield encoded.replace("+", "-").replace("/", "_")


def _base64_forms(secret: bytes) -> Iterator[str]:
    """Yield the base64 characters that encode nothing but the secret, for each of the three offsets it may begin at."""
    for before in range(3):
        encoded = b64encode(b"\0" * before + secret).decode()
        own = encoded[-(-before * 8 // 6) : (before + len(secret)) * 8 // 6]
        if len(own) >= SHORTEST:
            yield own


def _pieces(form: str) -> Iterator[str]:
    """Yield the form, cut into pieces if it is too long to be searched for in one; nothing if it is too short."""
    if len(form) <= LONGEST_FORM:
        if len(form) >= SHORTEST:
            yield form
        return
    for start in range(0, len(form), LONGEST_FORM):
        yield form[max(0, min(start, len(form) - LONGEST_FORM)) : start + LONGEST_FORM]
