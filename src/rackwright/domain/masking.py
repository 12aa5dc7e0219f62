"""Hiding the secrets of a run in whatever comes back from it: logs, errors, values. Pure.

A secret is found as it is, line by line if it has several, as JSON, shells and URLs write it, and in base64 wherever it
begins in what was encoded; and also where line ends were put into it. Text that comes in pieces is held back from the
first character on that may begin a secret.
"""

import json
from base64 import b64encode
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.sealed import MASK, is_sealed

SHORTEST = 4
"""Characters. What is shorter is found in so much that is no secret that hiding it would spoil every log."""
LONGEST_FORM = 4096
"""Characters that are looked for in one; a longer secret is looked for in pieces."""
MOST_HELD_BACK = 4 * LONGEST_FORM
"""Characters, line ends included: whoever puts more of those into a secret could show it in many other ways."""
MOST_LINES = 500
"""Lines of one secret that are looked for each by itself."""


def secret_texts(stored: Json, opened: Json) -> Iterator[str]:
    """The texts of all secrets: whatever stands in `opened` where `stored` has a sealed value."""
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
    """Hides some secrets."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {piece for secret in secrets for form in _forms(secret) for piece in _pieces(form)}
        self._forms = sorted(forms)

    def __bool__(self) -> bool:
        return bool(self._forms)

    def text(self, text: str) -> str:
        """The text with its secrets hidden."""
        return self._hidden(text, self._found(_without_line_ends(text))) if self._forms else text

    def value(self, value: Json) -> Json:
        """The value with the secrets in all its texts and keys hidden."""
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
        """The text as far as it can be shown, with its secrets hidden; and the rest, which may be half a secret."""
        if not self._forms:
            return text, ""
        compact = _without_line_ends(text)
        found = self._found(compact)
        begins = self._may_begin(compact)
        while found and found[-1][1] > begins:  # that secret may be the beginning of a longer one
            begins = min(begins, found.pop()[0])
        place = _Places(text).of(begins) if begins < len(compact) else len(text)
        if len(text) - place > MOST_HELD_BACK:
            return self.text(text), ""
        return self._hidden(text[:place], found), text[place:]

    def _found(self, compact: str) -> list[tuple[int, int]]:
        """Where secrets stand, in order; those that overlap are one."""
        ranges: list[tuple[int, int]] = []
        for form in self._forms:
            at = compact.find(form)
            while at >= 0:
                ranges.append((at, at + len(form)))
                at = compact.find(form, at + len(form))
        merged: list[tuple[int, int]] = []
        for start, end in sorted(ranges):
            if merged and start < merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        return merged

    def _may_begin(self, compact: str) -> int:
        """From where on a secret may have begun that does not end here; the length of the text if none has."""
        first = len(compact)
        for form in self._forms:
            at = max(0, len(compact) - len(form) + 1)
            head = form[:SHORTEST]
            while 0 <= (at := compact.find(head, at)) < first:
                if form.startswith(compact[at:]):
                    first = at
                at += 1
            for length in range(SHORTEST - 1, 0, -1):
                start = len(compact) - length
                if 0 <= start < first and length < len(form) and form.startswith(compact[start:]):
                    first = start
        return first

    def _hidden(self, text: str, found: list[tuple[int, int]]) -> str:
        if not found:
            return text
        places = _Places(text)
        shown: list[str] = []
        end = 0
        for start, stop in found:
            begin = places.of(start)
            shown += (text[end:begin], MASK)
            end = places.of(stop - 1) + 1
            if "\n" in text[begin:end]:
                shown.append("\n")
        return "".join([*shown, text[end:]])


class MaskedStream:
    """A text that comes in pieces, with its secrets hidden."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._rest = ""

    def feed(self, text: str) -> str:
        """What can be shown by now."""
        shown, self._rest = self._mask.split(self._rest + text)
        return shown

    def end(self) -> str:
        """What was held back: nothing comes any more that would make it a secret."""
        shown, self._rest = self._mask.text(self._rest), ""
        return shown


def masked_wall(mask: Mask, wall: JsonObject, secret_places: Iterable[tuple[str, ...]]) -> JsonObject:
    """What a run found out, with secrets hidden but where the role declares one: there it is sealed."""
    if not mask:
        return wall
    return _masked_but(mask, wall, list(secret_places))


def _masked_but(mask: Mask, values: JsonObject, places: list[tuple[str, ...]]) -> JsonObject:
    masked: JsonObject = {}
    for key, value in values.items():
        below = [place[1:] for place in places if place[:1] == (key,)]
        if () in below:
            masked[key] = value
        elif below and isinstance(value, dict):
            masked[mask.text(key)] = _masked_but(mask, value, below)
        else:
            masked[mask.text(key)] = mask.value(value)
    return masked


class _Places:
    """Where a character of a text without its line ends stands in the text itself."""

    def __init__(self, text: str) -> None:
        ends = [place for place, character in enumerate(text) if character in "\r\n"]
        self._before = [place - number for number, place in enumerate(ends)]
        """For each line end how many characters that are none stand before it."""

    def of(self, place: int) -> int:
        return place + bisect_left(self._before, place + 1)


def _without_line_ends(text: str) -> str:
    return text.replace("\n", "").replace("\r", "")


def _forms(secret: str) -> Iterator[str]:
    """All that a secret is looked for as, without line ends."""
    whole = secret.strip()
    lines = {line.strip() for line in whole.splitlines()}
    for text in {whole, *(lines if len(lines) <= MOST_LINES else ())}:
        if len(text) < SHORTEST:
            continue
        written = {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], quote(text, safe="")}
        written |= {text.replace("'", "'\\''"), text.replace("'", "'\"'\"'")}
        yield from (_without_line_ends(form) for form in written)
        for encoded in _base64_forms(text.encode("utf-8", "replace")):
            yield encoded
            yield encoded.replace("+", "-").replace("/", "_")


def _base64_forms(secret: bytes) -> Iterator[str]:
    """The characters that stand for nothing but the secret, for each place in three bytes at which it may begin."""
    for before in range(3):
        encoded = b64encode(b"\0" * before + secret).decode()
        own = encoded[-(-before * 8 // 6) : (before + len(secret)) * 8 // 6]
        if len(own) >= SHORTEST:
            yield own


def _pieces(form: str) -> Iterator[str]:
    if len(form) <= LONGEST_FORM:
        if len(form) >= SHORTEST:
            yield form
        return
    for start in range(0, len(form), LONGEST_FORM):
        yield form[max(0, min(start, len(form) - LONGEST_FORM)) : start + LONGEST_FORM]
