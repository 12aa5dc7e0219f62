"""The base class for reading YAML with line numbers: takes the parser's events and builds a tree of values.

Nothing recurses, so that depth is limited before anything can fail because of it. A subclass decides what a scalar
stands for, which tags, anchors and aliases are allowed, what the tree is made of and the texts of refusals: `sls.py`
reads state files as Salt does, `domain/barclamps/marked_values.py` reads barclamps by the rules of YAML 1.2. The class
is here, and the domain imports it from here, because the state engine travels alone and can import nothing from
outside. Nothing but PyYAML is imported, and that only when something is read: most state files are read without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, List, NamedTuple, Optional, TypeVar, Union, cast

if TYPE_CHECKING:
    import yaml

Tree = TypeVar("Tree")
"""A value of the document: a scalar, or a mapping or list, which is filled after its beginning was read."""
Key = TypeVar("Key")


class YamlMessages(NamedTuple):
    """The error texts for mistakes that are the same in every kind of file."""

    second_document: str
    collection_as_key: str
    doubled_key: str
    """Has the fields {key!r} and {first}, the line of the first one."""
    too_deep: str = ""


class _OpenCollection(Generic[Tree, Key]):
    """A mapping or list whose end has not been read."""

    __slots__ = ("holder", "is_mapping", "key", "key_is_next", "key_line")

    def __init__(self, holder: Tree, is_mapping: bool) -> None:
        self.holder = holder
        self.is_mapping = is_mapping
        self.key: Optional[Key] = None
        self.key_line = 0
        self.key_is_next = is_mapping


class YamlReader(ABC, Generic[Tree, Key]):
    """Reads one document. A mapping or list is put into its parent when it begins, so that an anchor can name it."""

    messages: YamlMessages
    depth_limit: Optional[int] = None
    """How many mappings and lists may be nested; None for any number."""

    def __init__(self) -> None:
        self.document: Optional[Tree] = None
        self._documents = 0
        self._stack: List[_OpenCollection[Tree, Key]] = []

    def read(self, text: str) -> Optional[Tree]:
        """Return the one document in a text; None if there is none."""
        import yaml

        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            for event in yaml.parse(text, Loader=loader):
                self.take_event(event)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = self.source_line(mark.line) if mark else None
            raise self.invalid(error.context or "", error.problem or "", line) from None
        except yaml.YAMLError as error:
            raise self.invalid("", str(error), None) from None
        return self.document

    # What a subclass decides

    def source_line(self, line: int) -> int:
        """Return the line to show for a line of the parser, which counts from 0."""
        return line + 1

    @abstractmethod
    def refusal(self, text: str, line: int) -> Exception:
        """Return the exception to raise for a mistake."""

    @abstractmethod
    def invalid(self, context: str, problem: str, line: Optional[int]) -> Exception:
        """Return the exception to raise for text that is no YAML; context and problem are the parser's words."""

    @abstractmethod
    def check(self, event: yaml.Event, line: int) -> None:
        """Refuse a scalar, mapping, list or alias for its anchor or tag."""

    @abstractmethod
    def scalar(self, event: yaml.ScalarEvent, line: int, key_line: int) -> Tree:
        """Return what a scalar stands for."""

    @abstractmethod
    def alias(self, event: yaml.AliasEvent, line: int) -> Tree:
        """Return what an alias stands for."""

    @abstractmethod
    def key(self, event: Union[yaml.ScalarEvent, yaml.AliasEvent], line: int) -> Key:
        """Return the key that a scalar or alias is."""

    @abstractmethod
    def begin(self, event: yaml.CollectionStartEvent, is_mapping: bool, line: int, key_line: int) -> Tree:
        """Return a new, empty mapping or list."""

    @abstractmethod
    def first_line(self, mapping: Tree, key: Key) -> Optional[int]:
        """Return on which line a mapping has a key; None if it does not have it."""

    @abstractmethod
    def put(self, mapping: Tree, key: Key, value: Tree, key_line: int) -> None:
        """Put a value into a mapping."""

    @abstractmethod
    def append(self, sequence: Tree, value: Tree, line: int) -> None:
        """Put a value at the end of a list."""

    def end(self, collection: Tree) -> None:
        """Handle the end of a mapping or list; by default nothing is done."""

    # The same for all

    def take_event(self, event: Any) -> None:
        """Take the parser's next event."""
        kind = type(event).__name__
        if kind == "ScalarEvent" or kind == "AliasEvent":
            self._take_value(event, kind == "AliasEvent")
        elif kind == "MappingStartEvent" or kind == "SequenceStartEvent":
            self._begin(event, kind == "MappingStartEvent")
        elif kind == "MappingEndEvent" or kind == "SequenceEndEvent":
            self.end(self._stack.pop().holder)
        elif kind == "DocumentStartEvent":
            self._documents += 1
            if self._documents > 1:
                raise self.refusal(self.messages.second_document, self.source_line(event.start_mark.line))

    def _take_value(self, event: Any, is_alias: bool) -> None:
        line = self.source_line(event.start_mark.line)
        self.check(event, line)
        parent = self._stack[-1] if self._stack else None
        if parent is not None and parent.key_is_next:
            self._take_key(parent, self.key(event, line), line)
        else:
            value = self.alias(event, line) if is_alias else self.scalar(event, line, _key_line(parent, line))
            self._store(parent, value, line)

    def _begin(self, event: Any, is_mapping: bool) -> None:
        line = self.source_line(event.start_mark.line)
        self.check(event, line)
        parent = self._stack[-1] if self._stack else None
        if len(self._stack) == self.depth_limit:
            raise self.refusal(self.messages.too_deep, line)
        if parent is not None and parent.key_is_next:
            raise self.refusal(self.messages.collection_as_key, line)
        collection = self.begin(event, is_mapping, line, _key_line(parent, line))
        self._store(parent, collection, line)
        self._stack.append(_OpenCollection(collection, is_mapping))

    def _take_key(self, mapping: _OpenCollection[Tree, Key], key: Key, line: int) -> None:
        first = self.first_line(mapping.holder, key)
        if first is not None:
            raise self.refusal(self.messages.doubled_key.format(key=key, first=first), line)
        mapping.key, mapping.key_line, mapping.key_is_next = key, line, False

    def _store(self, parent: Optional[_OpenCollection[Tree, Key]], value: Tree, line: int) -> None:
        if parent is None:
            self.document = value
        elif parent.is_mapping:
            parent.key_is_next = True
            self.put(parent.holder, cast(Key, parent.key), value, parent.key_line)
        else:
            self.append(parent.holder, value, line)


def _key_line(parent: Optional[_OpenCollection[Tree, Key]], line: int) -> int:
    """Return the line of the key that names the value on `line`; that line itself if there is none."""
    return parent.key_line if parent is not None and parent.is_mapping else line
