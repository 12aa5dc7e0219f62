"""Attributes in the form that a shell on a node can read and write without a JSON parser. Pure.

One attribute a line, `PATH TAB TYPE TAB VALUE`: maps and lists too, as JSON. A path starts with a slash; `~1` in it
stands for a slash within a key, `~0` for `~`, `~n` for a line end and `~t` for a tab. A value has its backslashes, tabs
and line ends escaped. The shell's half of this is `node/lib/attributes`.
"""

import copy
import json
from collections.abc import Iterator

from rackwright.domain.catalogue import Json, JsonObject

_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\0": "\\0000"})
_UNESCAPES = {"\\": "\\", "t": "\t", "n": "\n"}
_KEY_ESCAPES = str.maketrans({"~": "~0", "/": "~1", "\n": "~n", "\t": "~t"})


class BadAttribute(ValueError):
    """What a script wrote cannot be an attribute. The message names the path."""


def lines(attributes: JsonObject) -> Iterator[str]:
    """Every value of `attributes`, the whole first, each with its path."""
    yield from _lines("", attributes)


def _lines(path: str, value: Json) -> Iterator[str]:
    match value:
        case str():
            yield f"{path}\ts\t{value.translate(_ESCAPES)}"
        case dict():
            yield f"{path}\tm\t{_compact(value)}"
            for key, child in value.items():
                yield from _lines(f"{path}/{key.translate(_KEY_ESCAPES)}", child)
        case list():
            yield f"{path}\tl\t{_compact(value)}"
            for index, child in enumerate(value):
                yield from _lines(f"{path}/{index}", child)
        case _:
            yield f"{path}\tp\t{_compact(value)}"


def _compact(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES)


def wall_from(written: str, sent: JsonObject) -> JsonObject:
    """What the lines in `written` say, as one object. `sent` is what the scripts could read: where that has a list, an
    index in a path means an element of it, and the whole list comes back."""
    wall: JsonObject = {}
    for line in written.split("\n"):
        if line:
            path, kind, value = line.split("\t")
            _put(wall, sent, path, _value(path, kind, _unescape(value)))
    return wall


def _value(path: str, kind: str, text: str) -> Json:
    if kind == "s":
        return text
    try:
        value: Json = json.loads(text, parse_constant=_refuse_constant)
        _check_text(value)
    except ValueError as error:
        raise BadAttribute(f"write_attribute -j {path[1:]}: {text[:80]!r} is not JSON ({error})") from None
    return value


def _refuse_constant(name: str) -> Json:
    raise ValueError(f"{name} is no JSON number")


def _check_text(value: Json) -> None:
    """JSON can say more than text can hold, and the database refuses it only after the run."""
    match value:
        case str():
            if "\0" in value:
                raise ValueError("a text holds no zero character")
            value.encode()  # fails on half a surrogate pair
        case dict():
            for key, child in value.items():
                _check_text(key)
                _check_text(child)
        case list():
            for child in value:
                _check_text(child)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    letters = iter(text)
    return "".join(_UNESCAPES[next(letters)] if letter == "\\" else letter for letter in letters)


def _put(wall: JsonObject, sent: JsonObject, path: str, value: Json) -> None:
    keys = [_unescape_key(key) for key in path[1:].split("/")]
    place: Json = wall
    known: Json = sent
    for depth, key in enumerate(keys):
        known = _child(known, key)
        last = depth == len(keys) - 1
        if isinstance(place, list):
            position = _position(path, key, len(place))
            if position == len(place):
                place.append(None)
            place[position] = value if last else _room(place[position], known)
            place = place[position]
        elif isinstance(place, dict):
            place[key] = value if last else _room(place.get(key), known)
            place = place[key]


def _room(there: Json, known: Json) -> Json:
    """The map or list to write into: what the scripts wrote already, else the list they were sent, else a new map."""
    if isinstance(there, dict | list):
        return there
    return copy.deepcopy(known) if isinstance(known, list) else {}


def _child(value: Json, key: str) -> Json:
    if isinstance(value, dict):
        return value.get(key)
    if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
        return value[int(key)]
    return None


def _position(path: str, key: str, length: int) -> int:
    if not (key.isascii() and key.isdecimal() and int(key) <= length):
        raise BadAttribute(
            f"write_attribute {path[1:]}: {key!r} is no index into a list of {length}; the next one is {length}"
        )
    return int(key)


def _unescape_key(key: str) -> str:
    return key.replace("~n", "\n").replace("~t", "\t").replace("~1", "/").replace("~0", "~")
