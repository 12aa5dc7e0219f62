"""Outputs as variables: `${ID.stdout}` in an argument is what that state put out; referring to a state requires it.

Found and resolved before the run, filled in when the state that uses it runs. `${module:ID.key}` tells apart states
that share an ID, `$${` is a literal `${`, and the shell's own `${HOME}` or `${file%.txt}` stays what it is. How an
output gets into a command without becoming part of it is `shelltext.py`.
"""

from __future__ import annotations

import json
import re
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Protocol, Tuple

from . import shelltext
from .graph import StateIndex
from .module import StateError
from .refusal import did_you_mean

_REFERENCE = re.compile(r"(\$?)\$\{([^{}\n]*)\}")
_SHELL_EXPANSION = re.compile(r"[#!]|(?:[A-Za-z_]\w*|[0-9@*?$!#-])(?:[-=?+%#/^,@\[]|:[^a-zA-Z/])")
_COMMON_KEYS = frozenset(
    ("stdout", "stderr", "retcode", "pid", "result", "changes", "comment", "outcome", "name", "diff")
)


class RemoteOutputs(Protocol):
    """Where the outputs of other nodes come from in a mesh run."""

    def problem(self, node: str, reference: str) -> Optional[str]:
        """What is wrong with `${node:NODE/REFERENCE}`, before anything runs; None if nothing is."""

    def ready(self, node: str, reference: str) -> bool:
        """Whether there is something to fetch now: the value, or the certainty that it will never be there."""

    def fetch(self, node: str, reference: str) -> Any:
        """The value, once it is ready. Raises StateError if it never will be."""


class Reference(NamedTuple):
    state: int
    """The state referred to; -1 for one of another node."""
    path: Tuple[str, ...]
    node: str = ""
    rest: str = ""


class References:
    """All references of a run, each text resolved once."""

    def __init__(self, index: StateIndex, identities: List[str], remote: Optional[RemoteOutputs] = None) -> None:
        self._index = index
        self._identities = identities
        self._remote = remote
        self._known: Dict[str, Tuple[Optional[Reference], str]] = {}

    def find(self, value: Any) -> Iterator[Tuple[Optional[Reference], str]]:
        """Each reference in a value, or what is wrong with it."""
        for text in _find_texts(value):
            for match in _REFERENCE.finditer(text):
                if not match.group(1):
                    reference, told = self.resolve(match.group(2))
                    if reference is not None or told:
                        yield reference, told

    def resolve(self, text: str) -> Tuple[Optional[Reference], str]:
        """The reference; or None and what is wrong; or None and nothing, if this is not a reference at all."""
        if text not in self._known:
            self._known[text] = self._resolve(text)
        return self._known[text]

    def _resolve(self, text: str) -> Tuple[Optional[Reference], str]:
        if text.startswith("node:"):
            return self._resolve_remote(text[len("node:") :])
        if "." not in text:
            return None, ""
        from .combine import Requisite

        cut = text.rfind(".")
        while cut > 0:
            key, identity = "id", text[:cut]
            found = self._index.find(Requisite(key, identity, "", 0)) if not set(identity) & set("*?[]") else None
            if found is None and ":" in identity:
                key, _, identity = identity.partition(":")
                found = self._index.find(Requisite(key, identity, "", 0)) if key != "sls" else None
            if found is not None:
                if len(found) > 1:
                    return None, f"${{{text}}} could mean {len(found)} states; say which: ${{module:NAME.key}}"
                return Reference(found[0], tuple(text[cut + 1 :].split("."))), ""
            cut = text.rfind(".", 0, cut)
        if _SHELL_EXPANSION.match(text) and text.rsplit(".", 1)[1] not in _COMMON_KEYS:
            return None, ""
        identity = text[: text.find(".")]
        return None, f"${{{text}}} refers to no state of this run{did_you_mean(identity, self._identities)}"

    def _resolve_remote(self, text: str) -> Tuple[Optional[Reference], str]:
        node, slash, rest = text.partition("/")
        if not slash or not node or "." not in rest:
            return None, f"${{node:{text}}} must be ${{node:NAME/ID.key}}"
        if self._remote is None:
            return None, f"${{node:{text}}} takes another node's output, which only a mesh run has"
        told = self._remote.problem(node, rest)
        return (None, f"${{node:{text}}}: {told}") if told else (Reference(-1, (), node, rest), "")

    def unsafe(self, value: Any, read_by: str, shell: Any = None) -> str:
        """Why outputs cannot be put into a value that is read by a shell or the like; empty if they can."""
        told = (
            shelltext.find_problem(plain, spans, read_by, shell)
            for plain, spans, _ in map(self._parsed, _find_texts(value))
        )
        return next(filter(None, told), "")

    def _parsed(self, text: str) -> Tuple[str, List[Tuple[int, int]], List[Reference]]:
        """A text with `$${` written out, and its references with their places in it."""
        plain, end = "", 0
        spans: List[Tuple[int, int]] = []
        references: List[Reference] = []
        for match in _REFERENCE.finditer(text):
            reference = None if match.group(1) else self.resolve(match.group(2))[0]
            plain += text[end : match.start()]
            end = match.end()
            if reference is not None:
                spans.append((len(plain), len(plain) + len(match.group(0))))
                references.append(reference)
            plain += match.group(0)[len(match.group(1)) :]
        return plain + text[end:], spans, references

    def fill(self, value: Any, lookup: Callable[[Reference], Any], read_by: str = "") -> Any:
        """The value with every reference replaced. A reference alone keeps the type of what it refers to, but in what
        is read by a shell or the like: there each output is put in as one word.
        """
        if isinstance(value, str):
            plain = read_by in ("", shelltext.TEMPLATE)
            return self._fill_text(value, lookup) if plain else self._fill_command(value, lookup, read_by)
        if isinstance(value, list):
            return [self.fill(part, lookup, read_by) for part in value]
        if isinstance(value, dict):
            return {key: self.fill(part, lookup, read_by) for key, part in value.items()}
        return value

    def _fill_command(self, text: str, lookup: Callable[[Reference], Any], read_by: str) -> str:
        if "${" not in text:
            return text
        plain, spans, references = self._parsed(text)
        values = [as_text(self._value(reference, lookup)) for reference in references]
        return shelltext.fill_spans(plain, spans, values, read_by) if spans else plain

    def _fill_text(self, text: str, lookup: Callable[[Reference], Any]) -> Any:
        if "${" not in text:
            return text
        alone = _REFERENCE.fullmatch(text)
        if alone is not None and not alone.group(1):
            reference, _ = self.resolve(alone.group(2))
            return text if reference is None else self._value(reference, lookup)

        def replace(match: "re.Match[str]") -> str:
            if match.group(1):
                return match.group(0)[1:]
            reference, _ = self.resolve(match.group(2))
            return match.group(0) if reference is None else as_text(self._value(reference, lookup))

        return _REFERENCE.sub(replace, text)

    def awaited(self, value: Any) -> bool:
        """Whether a value refers to an output of another node that is not there yet."""
        others = [reference for reference, _ in self.find(value) if reference is not None and reference.node]
        return any(self._remote is not None and not self._remote.ready(one.node, one.rest) for one in others)

    def _value(self, reference: Reference, lookup: Callable[[Reference], Any]) -> Any:
        if reference.node and self._remote is not None:
            return self._remote.fetch(reference.node, reference.rest)
        return lookup(reference)


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def has_reference(value: Any) -> bool:
    return any("${" in text for text in _find_texts(value))


def _find_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from _find_texts(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _find_texts(part)


def pick_output(fields: Dict[str, Any], path: Tuple[str, ...], told: str) -> Any:
    """Follow a path into a state's outputs. Keys may hold dots themselves, so the longest that fits is taken."""
    value: Any = fields
    rest = path
    while rest:
        for size in range(len(rest), 0, -1):
            key = ".".join(rest[:size])
            if isinstance(value, dict) and key in value:
                value, rest = value[key], rest[size:]
                break
            if isinstance(value, list) and key.isdigit() and int(key) < len(value):
                value, rest = value[int(key)], rest[size:]
                break
        else:
            known = ", ".join(str(key) for key in value) if isinstance(value, dict) else type(value).__name__
            raise StateError(f"{told} has no output {'.'.join(path)!r}; it has: {known}")
    return value
