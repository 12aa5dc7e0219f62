"""Validating a `#cloud-config` by the schema of the very cloud-init that will read it.

The schema comes with the image. It is JSON Schema draft 4, with what cloud-init adds to it: `deprecated`, which is no
error; `anyOf` and `oneOf`, in which a deprecation does not make an alternative wrong; bytes are text; and what stands
beside a `$ref` counts. Nothing is ever fetched. An image may be a stranger's: its schema is followed for so many steps,
and its patterns are searched by RE2, which none of them can hold up.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from jsonschema import Draft4Validator, FormatChecker, TypeChecker
from jsonschema.exceptions import ValidationError
from jsonschema.validators import create
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT4

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.installs.cloud_init.yaml_document import YamlValue
from rackwright.domain.json_patterns import PATTERN_KEYWORDS, Validator, find_faulty_pattern
from rackwright.domain.patterns import TooMuchWork, bounded_searches

LONGEST_SCHEMA = 2 * 1024 * 1024
"""Bytes of a schema; those of today have 130 to 200 KB."""
MOST_FAULTS = 20
LONGEST_REASON = 300
MOST_STEPS = 2_000_000
"""Keywords of a schema that are applied to a document: references may lead around in a circle, or fan out."""
LETTERS_A_STEP = 100
"""Characters of a reason that count as one step; each reason may repeat all of the document."""
FORMATS = ("date", "email", "ipv4", "ipv6")
"""Those that cloud-init of Debian checks: the others need packages that it does not come with."""

_EMPTY_REGISTRY: Registry[bool | Mapping[str, Json]] = Registry()


class BadSchema(Exception):
    """The schema of an image cannot be used."""


class _Steps:
    """Counts the steps of one check; BadSchema if they are too many."""

    def __init__(self) -> None:
        self._taken = 0

    def take(self, number: int) -> None:
        self._taken += number
        if self._taken > MOST_STEPS:
            raise BadSchema(f"it takes more than {MOST_STEPS} steps to check this user-data by it")


_steps: ContextVar[_Steps] = ContextVar("steps")
"""Those of the check that is going on in this thread."""


@dataclass(frozen=True)
class SchemaFault:
    """What a schema says against a document."""

    path: tuple[str | int, ...]
    reason: str
    deprecation: bool
    """It works, but cloud-init wants something else."""
    line: int
    """The line that should be looked at."""

    def __str__(self) -> str:
        where = ".".join(str(step) for step in self.path)
        return f"{where}: {self.reason}" if where else self.reason


class _Deprecation(ValidationError):
    """A key or value that still works."""


def _is_text(_: TypeChecker, value: object) -> bool:
    return isinstance(value, str | bytes)


def _deprecated(_validator: Validator, flag: Json, _instance: object, schema: JsonObject) -> Iterator[ValidationError]:
    if flag:
        text = schema.get("deprecated_description") or schema.get("description") or "it may be gone in a later release"
        yield _Deprecation(f"is deprecated: {text}")


def _any_of(validator: Validator, branches: Json, instance: object, _schema: JsonObject) -> Iterator[ValidationError]:
    _, found = _first_branch(validator, branches, instance)
    yield from found


def _one_of(validator: Validator, branches: Json, instance: object, _schema: JsonObject) -> Iterator[ValidationError]:
    first, found = _first_branch(validator, branches, instance)
    later = [] if first is None or not isinstance(branches, list) else branches[first + 1 :]
    if any(not _errors(list(_descend(validator, instance, branch, 0))) for branch in later):
        yield ValidationError(f"{instance!r:.200} is valid under more than one of the given schemas")
    else:
        yield from found


def _first_branch(validator: Validator, branches: Json, instance: object) -> tuple[int | None, list[ValidationError]]:
    """Return the first branch without errors and its deprecations; None and one error if each branch has some."""
    context: list[ValidationError] = []
    for index, branch in enumerate(branches if isinstance(branches, list) else []):
        faults = list(_descend(validator, instance, branch, index))
        errors = _errors(faults)
        if not errors:
            return index, faults
        context += errors
    return None, [ValidationError(f"{instance!r:.200} is not valid under any of the given schemas", context=context)]


def _descend(validator: Validator, instance: object, schema: Json, index: int) -> Iterator[ValidationError]:
    for error in validator.evolve(schema=cast("JsonObject", schema)).iter_errors(instance):
        error.schema_path.appendleft(index)
        yield error


def _errors(faults: list[ValidationError]) -> list[ValidationError]:
    return [fault for fault in faults if not isinstance(fault, _Deprecation)]


Keyword = Callable[[Validator, Json, object, JsonObject], Iterator[ValidationError] | None]


def _counted(apply: Keyword) -> Keyword:
    """Have a keyword count its steps, and its reasons by their length, of which only the beginning is kept."""

    def apply_counted(
        validator: Validator, value: Json, instance: object, schema: JsonObject
    ) -> Iterator[ValidationError]:
        steps = _steps.get()
        # A keyword with several schemas looks at each of them, those of properties perhaps at each for each property.
        looked_at = len(value) if isinstance(value, list | dict) else 0
        properties = len(instance) if isinstance(instance, dict) and isinstance(value, dict) else 1
        steps.take(1 + looked_at * max(1, properties))
        if value is True and isinstance(instance, list) and schema.get("uniqueItems"):
            steps.take(len(instance) ** 2 // LETTERS_A_STEP)
        for error in apply(validator, value, instance, schema) or ():
            steps.take(1 + len(error.message) // LETTERS_A_STEP)
            error.message = error.message[: LONGEST_REASON + 1]
            yield error

    return apply_counted


def _make_validator_type() -> Callable[..., Validator]:
    own = {"deprecated": _deprecated, "anyOf": _any_of, "oneOf": _one_of, **PATTERN_KEYWORDS}
    keywords = cast("dict[str, Keyword]", {**Draft4Validator.VALIDATORS, **own})
    make = cast("Callable[..., Callable[..., Validator]]", create)
    return make(
        meta_schema=Draft4Validator.META_SCHEMA,
        validators={name: _counted(apply) for name, apply in keywords.items()},
        type_checker=Draft4Validator.TYPE_CHECKER.redefine("string", _is_text),
        id_of=DRAFT4.id_of,
    )


_CloudConfigValidator = _make_validator_type()


_UNUSABLE = (RecursionError, OverflowError, ValueError, TypeError, AttributeError, KeyError)
"""What the library raises of a schema that is none."""


def find_schema_faults(schema: str, document: YamlValue) -> list[SchemaFault]:
    """Return what a schema says against a document, in the order of its lines; BadSchema if it cannot be used."""
    _steps.set(_Steps())
    try:
        validator = _CloudConfigValidator(
            _parse_schema(schema), registry=_EMPTY_REGISTRY, format_checker=FormatChecker(FORMATS)
        )
        with bounded_searches():
            found = [_fault_of(error, document) for error in validator.iter_errors(document.plain())]
    except TooMuchWork as error:
        raise BadSchema(str(error)) from None
    except (*_UNUSABLE, Unresolvable) as error:
        raise BadSchema(f"{type(error).__name__}: {str(error)[:LONGEST_REASON]}") from None
    distinct = list(dict.fromkeys(found))
    return sorted(distinct, key=lambda fault: fault.line)[:MOST_FAULTS]


@lru_cache(maxsize=8)
def _parse_schema(text: str) -> JsonObject:
    parsed = json.loads(text)
    if not isinstance(parsed, dict):
        raise TypeError("it is no JSON object")
    for pattern, reason in _faulty_patterns(parsed):
        raise ValueError(f"its pattern {pattern[:80]!r} cannot be used: {reason}")
    return parsed


def _faulty_patterns(schema: JsonObject) -> Iterator[tuple[str, str]]:
    """Yield all in a schema that may be a pattern and is none that can be used, and why."""
    unread: list[Json] = [schema]
    while unread:
        value = unread.pop()
        if isinstance(value, dict):
            yield from filter(None, (find_faulty_pattern(key, child) for key, child in value.items()))
            unread += value.values()
        elif isinstance(value, list):
            unread += value


def _fault_of(error: ValidationError, document: YamlValue) -> SchemaFault:
    path = tuple(error.absolute_path)
    reason = _shorten(error.message)
    nearest = max(_leaves(error), key=lambda leaf: len(leaf.absolute_path), default=error)
    if len(nearest.absolute_path) > len(path):
        inner = ".".join(str(step) for step in nearest.absolute_path)
        reason = f"{_shorten(error.message, 100)}; the nearest says {inner}: {_shorten(nearest.message)}"
        path = tuple(nearest.absolute_path)
    return SchemaFault(tuple(error.absolute_path), reason, isinstance(error, _Deprecation), document.line_at(path))


def _leaves(error: ValidationError) -> Iterator[ValidationError]:
    """Yield what is wrong in each of the alternatives that an error is about."""
    for inner in error.context or ():
        yield from _leaves(inner) if inner.context else (inner,)


def _shorten(text: str, longest: int = LONGEST_REASON) -> str:
    shown = " ".join("".join(letter if letter.isprintable() else " " for letter in text[: longest + 1]).split())
    return shown if len(text) <= longest else f"{shown[: longest - 3]}..."
