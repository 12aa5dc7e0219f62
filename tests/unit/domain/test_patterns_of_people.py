"""Patterns of barclamps and images: none holds up the process, and they mean what Python understands by them."""

import re
import time

import pytest

from rackwright.domain.barclamps.attrib_schema import find_schema_fault, find_value_fault
from rackwright.domain.catalogue import JsonObject
from rackwright.domain.patterns import (
    LONGEST_PATTERN,
    TooMuchWork,
    bounded_searches,
    find_pattern_fault,
    is_found,
)

SLOW_IN_PYTHON = [
    "(a+)+b",
    "^(a*)*$",
    "^(a|a)*$",
    "^(a|ab|b)*c$",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
    "^(a?){50}a{50}$",
    "([a-zA-Z]+)*1",
    "(.*a){20}",
    r"^((ab)*)*$",
    "^((a+,)*)*$",
    "^(a*a*,)*$",
    "^" + "[A-Za-z0-9+/]{0,31}" * 10 + "!$",
    "^" + "a?" * 28 + "a" * 28 + "b$",
    "^" + "[a-z]*" * 20 + "!$",
]
TAKEN = [
    r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}(?![\s\S])",
    r"^([A-Za-z0-9_.,:=/@+-]+( [A-Za-z0-9_.,:=/@+-]+)*)?(?![\s\S])",
    r"^[a-z0-9@.-]+ [A-Za-z0-9+/=]+( [^\n\r]*)?(?![\s\S])",
    r"^([0-9a-f]{2}:){5}[0-9a-f]{2}$",
    r"^[a-z]+(-[a-z]+)*$",
    r"^((25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(25[0-5]|2[0-4]\d|1?\d?\d)$",
    "^.+$",
    "^.*$",
    "^(yes|no|auto)$",
    r"^(\+)?([0-9]+)\Z",
    r"^.+:.+$",
    r"\Aa|b\Z",
    "[]a]b",
    "[^]a]b",
    "[[:digit:]]",
    "[$(?]x",
    r"[\]$]",
    r"a\$",
    r"\\$",
    r"\\u0041",
    r"[\u0041-\u0043]\u00e4",
    r"[\s\S]b",
    r"x(?![\S\s])",
    "(?i)ab$",
    "(?P<name>a)b",
]
TEXTS = [
    "",
    "a",
    "b",
    "ab",
    "ab\n",
    "ab\n\n",
    "AB",
    "Aä",
    "1",
    "+1",
    "]b",
    "xb",
    "a:b",
    "x",
    "x\n",
    "$x",
    "(x",
    "]",
    "$",
]
TEXTS += [
    "a$",
    "\\",
    "\\\n",
    "\\u0041",
    "[:]",
    "d:",
    "yes",
    "yes\n",
    "192.0.2.1",
    "52:54:00:00:00:01",
    "web 1",
    "a\nb",
    "\ud800",
]


@pytest.mark.parametrize("pattern", SLOW_IN_PYTHON)
def test_no_pattern_takes_long_whatever_it_is(pattern: str) -> None:
    assert find_pattern_fault(pattern) is None
    for text in ("a" * 100_000, "a" * 30 + "!", "ab," * 30_000):
        began = time.process_time()
        try:
            with bounded_searches():
                is_found(pattern, text)
        except TooMuchWork:
            pass
        assert time.process_time() - began < 20, "Python would take hours, or years"


@pytest.mark.filterwarnings("ignore:Possible nested set")
@pytest.mark.parametrize("pattern", TAKEN)
def test_a_pattern_means_what_python_understands_by_it(pattern: str) -> None:
    assert find_pattern_fault(pattern) is None
    with bounded_searches():
        for text in TEXTS:
            assert is_found(pattern, text) == bool(re.search(pattern, text)), text


@pytest.mark.parametrize(
    "pattern", ["(", r"(a)\1", "a(?=b)", "a(?!b)", "(?<=a)b", "(a{1000}){1000}", "x" * (LONGEST_PATTERN + 1)]
)
def test_what_cannot_be_searched_like_that_is_refused_with_the_reason(pattern: str) -> None:
    assert find_pattern_fault(pattern)


def test_all_searches_of_a_check_together_are_bounded() -> None:
    pattern = "(.{0,200}a){0,4}b"
    with bounded_searches(), pytest.raises(TooMuchWork):
        any(is_found(pattern, "a" * 10_000) for _ in range(1000))
    with bounded_searches():
        assert not is_found(pattern, "a" * 1000), "the next check begins anew"


def test_the_schema_of_an_attrib_has_no_pattern_that_cannot_be_used() -> None:
    schemas: list[JsonObject] = [{"pattern": r"^(a)\1$"}, {"allOf": [{"patternProperties": {"a(?=b)": {}}}]}]
    for schema in schemas:
        fault = find_schema_fault(schema)
        assert fault is not None
        assert "cannot be used: invalid" in fault.reason


def test_a_value_is_tried_on_its_pattern() -> None:
    schema: JsonObject = {"pattern": "^(.+)+:.+$"}
    assert find_value_fault(schema, "a:b") is None
    fault = find_value_fault(schema, "ab")
    assert fault is not None
    assert fault.reason == "'ab' does not match '^(.+)+:.+$'"


def test_a_value_on_which_patterns_take_too_long_is_refused() -> None:
    schema: JsonObject = {"pattern": "(.{0,200}a){0,4}b"}
    fault = find_value_fault(schema, "a" * 100_000)
    assert fault is not None
    assert "take too long" in fault.reason


def test_keys_are_tried_on_patterns_in_the_same_way() -> None:
    slow = "^(a+)+$"
    schema: JsonObject = {"patternProperties": {slow: {"type": "integer"}}, "additionalProperties": False}
    assert find_value_fault(schema, {"aaa": 1}) is None
    assert find_value_fault(schema, {"aaa": "x"}) is not None
    fault = find_value_fault(schema, {"a" * 100 + "!": 1})
    assert fault is not None
    assert "Additional properties are not allowed" in fault.reason
    others: JsonObject = {
        "properties": {"b": {}},
        "patternProperties": {slow: {}},
        "additionalProperties": {"type": "null"},
    }
    assert find_value_fault(others, {"b": 1, "a": 1, "c": None}) is None
    assert find_value_fault(others, {"c": 1}) is not None


def test_what_would_search_patterns_by_itself_is_refused_beside_them() -> None:
    schema: JsonObject = {"allOf": [{"patternProperties": {"^a$": {}}}], "unevaluatedProperties": False}
    fault = find_schema_fault(schema)
    assert fault is not None
    assert "write additionalProperties" in fault.reason
    assert find_schema_fault({"properties": {"a": {}}, "unevaluatedProperties": False}) is None
