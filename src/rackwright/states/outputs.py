"""References to outputs of other states: `${ID.stdout}` in an argument stands for the output of that state.

A reference to a state also requires that state. References are found and resolved before the run, and filled in when
the state that uses them runs. `${module:ID.key}` tells apart states that share an ID, `$${` is a literal `${`, and the
shell's own `${HOME}` or `${file%.txt}` stays unchanged. `shelltext.py` puts an output into a command without making it
a part of the command.
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
    """The outputs of other nodes in a mesh run."""

    def problem(self, node: str, reference: str) -> Optional[str]:
        """Return what is wrong with `${node:NODE/REFERENCE}`, before anything runs; None if nothing is."""

    def ready(self, node: str, reference: str) -> bool:
        """Return whether `fetch` has an answer now: the value, or the certainty that it will never be there."""

    def fetch(self, node: str, reference: str) -> Any:
        """Return the value, once it is ready. Raises StateError if it never will be."""


class Reference(NamedTuple):
    """One output of a state of this run, or of a state on another node."""

    state: int
    """The index of the state referred to; -1 for a state of another node."""
    path: Tuple[str, ...]
    node: str = ""
    remote_path: str = ""
    """For a state of another node: its ID and the keys, as written."""


class References:
    """All references of a run, each text resolved once."""

    def __init__(self, index: StateIndex, identities: List[str], remote: Optional[RemoteOutputs] = None) -> None:
        self._index = index
        self._identities = identities
        self._remote = remote
        self._resolved: Dict[str, Tuple[Optional[Reference], str]] = {}

    def find(self, value: Any) -> Iterator[Tuple[Optional[Reference], str]]:
        """Return each reference in a value, or None and what is wrong with it."""
        for text in _find_texts(value):
            for match in _REFERENCE.finditer(text):
                if not match.group(1):
                    reference, problem = self.resolve(match.group(2))
                    if reference is not None or problem:
                        yield reference, problem

    def resolve(self, text: str) -> Tuple[Optional[Reference], str]:
        """Return the reference; or None and what is wrong; or None and an empty text, if this is no reference."""
        if text not in self._resolved:
            self._resolved[text] = self._resolve(text)
        return self._resolved[text]

    def _resolve(self, text: str) -> Tuple[Optional[Reference], str]:
        if text.startswith("node:"):
            return self._resolve_remote(text[len("node:") :])
        if "." not in text:
            return None, ""
        from .combine import Requisite

        dot = text.rfind(".")
        while dot > 0:
            key, identity = "id", text[:dot]
            states = self._index.find(Requisite(key, identity, "", 0)) if not set(identity) & set("*?[]") else None
            if states is None and ":" in identity:
                key, _, identity = identity.partition(":")
                states = self._index.find(Requisite(key, identity, "", 0)) if key != "sls" else None
            if states is not None:
                if len(states) > 1:
                    return None, f"${{{text}}} could mean {len(states)} states; say which: ${{module:NAME.key}}"
                return Reference(states[0], tuple(text[dot + 1 :].split("."))), ""
            dot = text.rfind(".", 0, dot)
        if _SHELL_EXPANSION.match(text) and text.rsplit(".", 1)[1] not in _COMMON_KEYS:
            return None, ""
        identity = text[: text.find(".")]
        return None, f"${{{text}}} refers to no state of this run{did_you_mean(identity, self._identities)}"

    def _resolve_remote(self, text: str) -> Tuple[Optional[Reference], str]:
        node, slash, remote_path = text.partition("/")
        if not slash or not node or "." not in remote_path:
            return None, f"${{node:{text}}} must be ${{node:NAME/ID.key}}"
        if self._remote is None:
            return None, f"${{node:{text}}} takes another node's output, which only a mesh run has"
        problem = self._remote.problem(node, remote_path)
        return (None, f"${{node:{text}}}: {problem}") if problem else (Reference(-1, (), node, remote_path), "")

    def unsafe_reason(self, value: Any, read_by: str, shell: Any = None) -> str:
        """Return why outputs cannot be put into a value that a shell or the like reads; empty if they can."""
        reasons = (
            shelltext.find_problem(plain, spans, read_by, shell)
            for plain, spans, _ in map(self._parse_references, _find_texts(value))
        )
        return next(filter(None, reasons), "")

    def _parse_references(self, text: str) -> Tuple[str, List[Tuple[int, int]], List[Reference]]:
        """Return a text with `$${` replaced by `${`, the spans of its references in that text, and the references."""
        unescaped, end = "", 0
        spans: List[Tuple[int, int]] = []
        references: List[Reference] = []
        for match in _REFERENCE.finditer(text):
            reference = None if match.group(1) else self.resolve(match.group(2))[0]
            unescaped += text[end : match.start()]
            end = match.end()
            if reference is not None:
                spans.append((len(unescaped), len(unescaped) + len(match.group(0))))
                references.append(reference)
            unescaped += match.group(0)[len(match.group(1)) :]
        return unescaped + text[end:], spans, references

    def fill(self, value: Any, lookup: Callable[[Reference], Any], read_by: str = "") -> Any:
        """Return the value with every reference replaced.

        A value that is only a reference keeps the type of the output. In a value that a shell or the like reads, each
        output is put in as one word.
        """
        if isinstance(value, str):
            is_value = read_by in ("", shelltext.TEMPLATE)
            return self._fill_text(value, lookup) if is_value else self._fill_command(value, lookup, read_by)
        if isinstance(value, list):
            return [self.fill(part, lookup, read_by) for part in value]
        if isinstance(value, dict):
            return {key: self.fill(part, lookup, read_by) for key, part in value.items()}
        return value

    def _fill_command(self, text: str, lookup: Callable[[Reference], Any], read_by: str) -> str:
        if "${" not in text:
            return text
        plain, spans, references = self._parse_references(text)
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

    def is_awaiting(self, value: Any) -> bool:
        """Return whether a value refers to an output of another node that is not there yet."""
        remote_references = [reference for reference, _ in self.find(value) if reference is not None and reference.node]
        return any(
            self._remote is not None and not self._remote.ready(reference.node, reference.remote_path)
            for reference in remote_references
        )

    def _value(self, reference: Reference, lookup: Callable[[Reference], Any]) -> Any:
        if reference.node and self._remote is not None:
            return self._remote.fetch(reference.node, reference.remote_path)
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


def pick_output(fields: Dict[str, Any], path: Tuple[str, ...], subject: str) -> Any:
    """Return the output at the end of a path. Keys may contain dots, so the longest key that fits is taken.

    `subject` names the state in the error.
    """
    value: Any = fields
    remaining = path
    while remaining:
        for size in range(len(remaining), 0, -1):
            key = ".".join(remaining[:size])
            if isinstance(value, dict) and key in value:
                value, remaining = value[key], remaining[size:]
                break
            if isinstance(value, list) and key.isdigit() and int(key) < len(value):
                value, remaining = value[int(key)], remaining[size:]
                break
        else:
            known = ", ".join(str(key) for key in value) if isinstance(value, dict) else type(value).__name__
            raise StateError(f"{subject} has no output {'.'.join(path)!r}; it has: {known}")
    return value
