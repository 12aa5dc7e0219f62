"""Reading the YAML of user-data as cloud-init does, each value with its line.

cloud-init reads YAML 1.1 by PyYAML: `yes` and `on` are true, 0644 is an octal number, anchors and merge keys count. A
reader with other rules would judge another document than the machine. Stricter than cloud-init: a key that is there
twice, which there silently hides the first, keys that are no text, and anything too big or too deep. Aliases and what
`<<` merges count as often as they are used, and before they are: a small text cannot stand for a huge document.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from typing import cast

import yaml
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from rackwright.states.reading.yaml_lines import YamlMessages, YamlReader

MOST_DEPTH = 32
MOST_VALUES = 10_000
MOST_LETTERS = 1 << 20
"""Characters of all values and keys, each alias counted as what it stands for."""
LONGEST_KEY = 1024
LONGEST_NUMBER = 100
"""Characters of a number. Python turns a long one into text and back in far more time than it is read in."""

Scalar = str | int | float | bool | bytes | date | None
Plain = Scalar | list["Plain"] | dict[str, "Plain"]
"""A document as PyYAML returns it."""

_MERGE = "<<"
_MERGE_TAG = "tag:yaml.org,2002:merge"
_SCALAR_TAGS = frozenset(
    f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "binary", "timestamp")
)
_NUMBER_TAGS = frozenset({"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"})
_COLLECTION_TAGS = frozenset({"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})


class BadYaml(Exception):
    """A text is not a YAML document that user-data may be."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


@dataclass(slots=True)
class YamlValue:
    """One value of the document, with its line."""

    value: "Scalar | list[YamlValue] | dict[str, YamlValue]"
    line: int
    key_line: int
    """The line of the key that names this value; the value's own line if it has no key."""
    size: int = 1
    """Values in it, itself among them, each alias counted as what it stands for."""
    letters: int = 0
    """Characters of all texts in it, counted in the same way."""
    depth: int = 0
    """How many mappings and lists are nested in it."""
    closed: bool = True
    merged: "list[YamlValue] | None" = None
    """The mappings that `<<` merges into this one when it ends."""

    def plain(self) -> Plain:
        """Return the value without its lines. Recursion is safe: no document is deeper than MOST_DEPTH."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def line_at(self, path: Iterable[str | int]) -> int:
        """Return the line of what is at the end of `path`, or of the last thing along it that is there."""
        current = self
        for step in path:
            if isinstance(current.value, dict) and step in current.value:
                current = current.value[str(step)]
            elif isinstance(current.value, list) and isinstance(step, int) and step < len(current.value):
                current = current.value[step]
            else:
                break
        return current.key_line

    def find(self, *path: str) -> "YamlValue | None":
        """Return the value at the end of `path` through mappings; None if there is none."""
        current = self
        for step in path:
            if not isinstance(current.value, dict) or step not in current.value:
                return None
            current = current.value[step]
        return current

    def walk(self) -> Iterator["YamlValue"]:
        """Yield this value and all that is in it."""
        yield self
        children = self.value.values() if isinstance(self.value, dict) else self.value
        if isinstance(children, str | bytes) or not isinstance(children, Iterable):
            return
        for child in children:
            yield from child.walk()


def read_document(text: str) -> YamlValue | None:
    """Return the document in a text; None if it is empty, BadYaml if it is none."""
    return _DocumentReader().read(text)


class _DocumentReader(YamlReader[YamlValue, str]):
    messages = YamlMessages(
        second_document="a second document begins here; user-data has only one",
        collection_as_key="a key is text, not a list or a mapping",
        doubled_key="the key {key!r} is here twice; the first is on line {first}",
        too_deep=f"this is nested deeper than {MOST_DEPTH} levels",
    )
    depth_limit = MOST_DEPTH

    def __init__(self) -> None:
        super().__init__()
        self._anchors: dict[str, YamlValue] = {}
        self._resolve = cast("Callable[[type[yaml.Node], str, tuple[bool, bool]], str]", Resolver().resolve)
        self._constructor = SafeConstructor()
        self._values = self._letters = self._merged = 0

    def refusal(self, text: str, line: int) -> BadYaml:
        return BadYaml(text, line)

    def invalid(self, context: str, problem: str, line: int | None) -> BadYaml:
        return BadYaml(f"this is no valid YAML: {problem or context or 'it cannot be read'}", line or 1)

    def check(self, event: yaml.Event, line: int) -> None:
        tag = getattr(event, "tag", None)
        known = _SCALAR_TAGS if isinstance(event, yaml.ScalarEvent) else _COLLECTION_TAGS
        if tag not in (None, "!") and tag not in known:
            raise BadYaml(f"the tag {str(tag)[:60]} is not allowed", line)

    def _count(self, values: int, letters: int, line: int) -> None:
        """Count what the document stands for; BadYaml if it is too much."""
        self._values += values
        self._letters += letters
        if self._values > MOST_VALUES:
            raise BadYaml(f"this stands for more than {MOST_VALUES} values", line)
        if self._letters > MOST_LETTERS:
            raise BadYaml(f"this stands for more than {MOST_LETTERS} characters", line)

    def scalar(self, event: yaml.ScalarEvent, line: int, key_line: int) -> YamlValue:
        self._count(1, len(event.value), line)
        value = YamlValue(self._construct(event, line), line, key_line, letters=len(event.value))
        self._remember(event, value)
        return value

    def _construct(self, event: yaml.ScalarEvent, line: int) -> Scalar:
        """Return what a scalar stands for, by PyYAML's own rules."""
        tag = event.tag
        if tag is None or tag == "!":
            tag = self._resolve(yaml.ScalarNode, event.value, event.implicit)
        if tag not in _SCALAR_TAGS:  # a `<<` or `=` that is no key
            return event.value
        node = yaml.ScalarNode(tag, event.value)
        try:
            if tag in _NUMBER_TAGS and len(event.value) > LONGEST_NUMBER:
                raise ValueError("it is too long")
            value: Scalar = self._constructor.construct_object(node)
        except (ValueError, KeyError, TypeError, OverflowError, yaml.YAMLError):
            shown = event.value if len(event.value) <= 40 else f"{event.value[:37]}..."
            raise BadYaml(f"{shown!r} is no {tag.rpartition(':')[2]}; put text in quotes", line) from None
        return value

    def _remember(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent, value: YamlValue) -> None:
        if event.anchor is not None:
            self._anchors[event.anchor] = value

    def alias(self, event: yaml.AliasEvent, line: int) -> YamlValue:
        name = str(event.anchor)
        target = self._anchors.get(name)
        if target is None:
            raise BadYaml(f"the alias *{name[:40]} has no anchor above it", line)
        if not target.closed:
            raise BadYaml(f"the alias *{name[:40]} is within what it stands for", line)
        self._count(target.size, target.letters, line)
        return replace(target, line=line, key_line=line)

    def key(self, event: yaml.ScalarEvent | yaml.AliasEvent, line: int) -> str:
        value = self.alias(event, line).value if isinstance(event, yaml.AliasEvent) else self._key_of(event, line)
        if isinstance(value, list | dict):
            raise BadYaml(self.messages.collection_as_key, line)
        if not isinstance(value, str):
            raise BadYaml(f"the key {str(value)[:40]!r} is not text; put it in quotes", line)
        if len(value) > LONGEST_KEY:
            raise BadYaml(f"this key has more than {LONGEST_KEY} characters", line)
        self._count(0, len(value), line)
        return value

    def _key_of(self, event: yaml.ScalarEvent, line: int) -> Scalar:
        """Return the key; a merge key as a text that no other key is."""
        if event.tag is None and self._resolve(yaml.ScalarNode, event.value, event.implicit) == _MERGE_TAG:
            return _MERGE
        value = self._construct(event, line)
        if value == _MERGE:
            raise BadYaml("a key << in quotes is not allowed", line)
        self._remember(event, YamlValue(value, line, line))
        return value

    def begin(self, event: yaml.CollectionStartEvent, is_mapping: bool, line: int, key_line: int) -> YamlValue:
        self._count(1, 0, line)
        collection = YamlValue({} if is_mapping else [], line, key_line, closed=False)
        self._remember(event, collection)
        return collection

    def first_line(self, mapping: YamlValue, key: str) -> int | None:
        assert isinstance(mapping.value, dict)
        value = mapping.value.get(key)
        return None if value is None else value.key_line

    def put(self, mapping: YamlValue, key: str, value: YamlValue, key_line: int) -> None:
        assert isinstance(mapping.value, dict)
        value.key_line = key_line
        if key == _MERGE:
            mapping.merged = [*(mapping.merged or ()), value]
        else:
            mapping.value[key] = value

    def append(self, sequence: YamlValue, value: YamlValue, line: int) -> None:
        assert isinstance(sequence.value, list)
        sequence.value.append(value)

    def end(self, collection: YamlValue) -> None:
        collection.closed = True
        for source in collection.merged or ():
            self._merge(collection, source)
        collection.merged = None
        children = collection.value.values() if isinstance(collection.value, dict) else collection.value
        assert isinstance(children, Iterable)
        assert not isinstance(children, str | bytes)
        if isinstance(collection.value, dict):
            collection.letters = sum(map(len, collection.value))
        for child in children:
            collection.size += child.size
            collection.letters += child.letters
            collection.depth = max(collection.depth, child.depth + 1)
        if collection.size > MOST_VALUES:
            raise BadYaml(f"this stands for more than {MOST_VALUES} values", collection.line)
        if collection.depth >= MOST_DEPTH:
            raise BadYaml(self.messages.too_deep, collection.line)

    def _merge(self, mapping: YamlValue, source: YamlValue) -> None:
        """Merge a mapping, or each of a list, into another whose own keys count more; of a list, earlier ones do."""
        assert isinstance(mapping.value, dict)
        for merged in source.value if isinstance(source.value, list) else [source]:
            if not isinstance(merged.value, dict):
                raise BadYaml("<< takes a mapping or a list of mappings", source.key_line)
            self._merged += len(merged.value)
            if self._merged > MOST_VALUES:
                raise BadYaml(f"<< stands for more than {MOST_VALUES} values by here", source.key_line)
            self._count(0, merged.letters, source.key_line)
            for key, value in merged.value.items():
                mapping.value.setdefault(key, value)
