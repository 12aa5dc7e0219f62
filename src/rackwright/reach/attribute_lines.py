"""Attributes as lines of text, which a shell on a node reads and writes without a JSON parser. Pure.

One attribute a line, `PATH TAB TYPE TAB VALUE`: maps and lists too, as JSON. A path starts with a slash; `~1` in it
stands for a slash within a key, `~0` for `~`, `~n` for a line end and `~t` for a tab. A value has its backslashes, tabs
and line ends escaped. `node/lib/attributes` is the counterpart in shell.
"""

import copy
import json
from collections.abc import Callable, Iterator

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.foreign import DEEPEST

_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\0": "\\0000"})
_UNESCAPES = {"\\": "\\", "t": "\t", "n": "\n"}
_KEY_ESCAPES = str.maketrans({"~": "~0", "/": "~1", "\n": "~n", "\t": "~t"})


MOST_LINES = 10_000
"""Attributes that the scripts of one run may write. All are read at once, while the server does nothing else."""
LONGEST_PATH = 4096
LONGEST_INDEX = 9
"""Digits of an index into a list."""
SHOWN = 80
"""Characters of a path or value that a message shows."""


class BadAttribute(ValueError):
    """A line that a script wrote is no attribute. The message names the path."""


def attribute_lines(attributes: JsonObject) -> Iterator[str]:
    """Yield a line for every value of `attributes` with its path; the line of the root object comes first."""
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


def parse_wall(written: str, sent: JsonObject, hide: Callable[[str], str] = str) -> JsonObject:
    """Return the lines in `written` as one object, the wall.

    `sent` holds the attributes that the scripts could read: where `sent` has a list, an index in a path means an
    element of that list, and the whole list is in the wall.

    The lines come from the node: BadAttribute if the helpers there cannot have written one of them. `hide` hides
    secrets in what it shows of a line, before that is shortened: half a secret is not found any more.
    """
    wall: JsonObject = {}
    copied: set[tuple[str, ...]] = set()
    if written.count("\n") > MOST_LINES:
        raise BadAttribute(f"they wrote attributes more than {MOST_LINES} times. Write maps and lists whole, with -j.")
    for line in written.split("\n"):
        if line:
            path, kind, text = _split_line(line, hide)
            _put(wall, sent, path, _parse_value(path, kind, _unescape(text), hide), copied)
    return wall


def _split_line(line: str, hide: Callable[[str], str]) -> tuple[str, str, str]:
    """Return the path, the kind and the escaped value of a line."""
    parts = line.split("\t")
    if len(parts) != 3 or not parts[0].startswith("/"):
        raise BadAttribute(f"{hide(line)[:SHOWN]!r} is no line that write_attribute writes")
    path, kind, value = parts
    if len(path) > LONGEST_PATH or path.count("/") > DEEPEST:
        raise BadAttribute(f"write_attribute {hide(path)[1:SHOWN]}...: the path has too many parts, or is too long")
    return path, kind, value


def _parse_value(path: str, kind: str, text: str, hide: Callable[[str], str]) -> Json:
    if kind == "s":
        return text
    try:
        value: Json = json.loads(text, parse_constant=_refuse_constant)
        _check_text(value)
    except (ValueError, RecursionError) as error:
        raise BadAttribute(f"write_attribute -j {path[1:]}: {hide(text)[:SHOWN]!r} is not JSON ({error})") from None
    return value


def _refuse_constant(name: str) -> Json:
    raise ValueError(f"{name} is no JSON number")


def _check_text(value: Json) -> None:
    """Raise ValueError if a text in `value` cannot be stored.

    JSON can express texts that the database does not hold, and the database refuses them only after the run.
    """
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
    """Write a value into the wall at `path`.

    `copied` holds the paths of the lists that were copied from `sent`: each is copied only once, since it may be long.
    """
    keys = [_unescape_key(key) for key in path[1:].split("/")]
    container: Json = wall
    sent_value: Json = sent
    for depth, key in enumerate(keys):
        sent_value = _child(sent_value, key)
        is_last = depth == len(keys) - 1
        if not is_last and isinstance(sent_value, list) and not isinstance(_child(container, key), dict | list):
            _note_copy(copied, path, tuple(keys[: depth + 1]))
        if isinstance(container, list):
            position = _position(path, key, len(container))
            if position == len(container):
                container.append(None)
            container[position] = value if is_last else _container_for(container[position], sent_value)
            container = container[position]
        elif isinstance(container, dict):
            container[key] = value if is_last else _container_for(container.get(key), sent_value)
            container = container[key]


def _note_copy(copied: set[tuple[str, ...]], path: str, keys: tuple[str, ...]) -> None:
    if keys in copied:
        raise BadAttribute(f"write_attribute {path[1:]}: the list was written over, and then written into, before")
    copied.add(keys)


def _container_for(written: Json, sent_value: Json) -> Json:
    """Return the map or list to write into: the one the scripts wrote already, else a copy of the list they were sent,
    else a new map."""
    if isinstance(written, dict | list):
        return written
    return copy.deepcopy(sent_value) if isinstance(sent_value, list) else {}


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
