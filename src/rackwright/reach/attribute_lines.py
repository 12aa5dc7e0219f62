"""Attributes in the form that a shell on a node can read and write without a JSON parser. Pure.

One attribute a line, `PATH TAB TYPE TAB VALUE`: maps and lists too, as JSON. A path starts with a slash; `~1` in it
stands for a slash within a key, `~0` for `~`, `~n` for a line end and `~t` for a tab. A value has its backslashes, tabs
and line ends escaped. The shell's half of this is `node/lib/attributes`.
"""

import copy
import json
from collections.abc import Iterator

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.foreign import DEEPEST

_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\0": "\\0000"})
_UNESCAPES = {"\\": "\\", "t": "\t", "n": "\n"}
_KEY_ESCAPES = str.maketrans({"~": "~0", "/": "~1", "\n": "~n", "\t": "~t"})


MOST_LINES = 10_000
"""Attributes that the scripts of one run may write. All are read at once, while the server does nothing else."""
LONGEST_PATH = 4096
LONGEST_INDEX = 9
"""Digits."""
SHOWN = 80
"""Characters of a path or value that a message shows."""


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
    index in a path means an element of it, and the whole list comes back.

    The lines come from the node: BadAttribute if the helpers there cannot have written one.
    """
    wall: JsonObject = {}
    copied: set[tuple[str, ...]] = set()
    if written.count("\n") > MOST_LINES:
        raise BadAttribute(f"they wrote attributes more than {MOST_LINES} times. Write maps and lists whole, with -j.")
    for line in written.split("\n"):
        if line:
            path, kind, value = _parts(line)
            _put(wall, sent, path, _value(path, kind, _unescape(value)), copied)
    return wall


def _parts(line: str) -> tuple[str, str, str]:
    """Path, kind and value of a line."""
    parts = line.split("\t")
    if len(parts) != 3 or not parts[0].startswith("/"):
        raise BadAttribute(f"{line[:SHOWN]!r} is no line that write_attribute writes")
    path, kind, value = parts
    if len(path) > LONGEST_PATH or path.count("/") > DEEPEST:
        raise BadAttribute(f"write_attribute {path[1:SHOWN]}...: the path has too many parts, or is too long")
    return path, kind, value


def _value(path: str, kind: str, text: str) -> Json:
    if kind == "s":
        return text
    try:
        value: Json = json.loads(text, parse_constant=_refuse_constant)
        _check_text(value)
    except (ValueError, RecursionError) as error:
        raise BadAttribute(f"write_attribute -j {path[1:]}: {text[:SHOWN]!r} is not JSON ({error})") from None
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
    return "".join(_unescaped(next(letters, "")) if letter == "\\" else letter for letter in letters)


def _unescaped(letter: str) -> str:
    if letter not in _UNESCAPES:
        raise BadAttribute(f"a value has a backslash before {letter!r}, which write_attribute does not write")
    return _UNESCAPES[letter]


def _put(wall: JsonObject, sent: JsonObject, path: str, value: Json, copied: set[tuple[str, ...]]) -> None:
    """Write a value into the wall. `copied` are the lists that were taken over from what was sent: each once, since it
    may be long."""
    keys = [_unescape_key(key) for key in path[1:].split("/")]
    place: Json = wall
    known: Json = sent
    for depth, key in enumerate(keys):
        known = _child(known, key)
        last = depth == len(keys) - 1
        if not last and isinstance(known, list) and not isinstance(_child(place, key), dict | list):
            _note_copy(copied, path, tuple(keys[: depth + 1]))
        if isinstance(place, list):
            position = _position(path, key, len(place))
            if position == len(place):
                place.append(None)
            place[position] = value if last else _room(place[position], known)
            place = place[position]
        elif isinstance(place, dict):
            place[key] = value if last else _room(place.get(key), known)
            place = place[key]


def _note_copy(copied: set[tuple[str, ...]], path: str, keys: tuple[str, ...]) -> None:
    if keys in copied:
        raise BadAttribute(f"write_attribute {path[1:]}: the list was written over, and then written into, before")
    copied.add(keys)


def _room(there: Json, known: Json) -> Json:
    """The map or list to write into: what the scripts wrote already, else the list they were sent, else a new map."""
    if isinstance(there, dict | list):
        return there
    return copy.deepcopy(known) if isinstance(known, list) else {}


def _child(value: Json, key: str) -> Json:
    if isinstance(value, dict):
        return value.get(key)
    if isinstance(value, list) and _is_index(key) and int(key) < len(value):
        return value[int(key)]
    return None


def _is_index(key: str) -> bool:
    return key.isascii() and key.isdecimal() and len(key) <= LONGEST_INDEX


def _position(path: str, key: str, length: int) -> int:
    if not (_is_index(key) and int(key) <= length):
        raise BadAttribute(
            f"write_attribute {path[1:]}: {key!r} is no index into a list of {length}; the next one is {length}"
        )
    return int(key)


def _unescape_key(key: str) -> str:
    return key.replace("~n", "\n").replace("~t", "\t").replace("~1", "/").replace("~0", "~")
