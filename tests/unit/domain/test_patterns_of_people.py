"""Patterns that could hold up the process are refused, those that people write are not."""

from unittest import mock

import pytest

from rackwright.domain.barclamps.attrib_schema import SchemaFault, find_schema_fault, find_value_fault
from rackwright.domain.catalogue import JsonObject
from rackwright.domain.patterns import find_pattern_fault, longest_text

SLOW = [
    "(a+)+b",
    "^(a*)*$",
    "^(a|a)*$",
    "^(a|ab|b)*$",
    "(x+x+)+y",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
    "^(a?){50}a{50}$",
    "([a-zA-Z]+)*1",
    "(.*a){20}",
    r"^(\w+\s?)*$",
    "^((ab)*)*$",
    "^((a+,)*)*$",
    r"(a)\1",
    "x" * 2000,
]
TAKEN = [
    r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}(?![\s\S])",
    r"^([A-Za-z0-9_.,:=/@+-]+( [A-Za-z0-9_.,:=/@+-]+)*)?(?![\s\S])",
    r"^[a-z0-9@.-]+ [A-Za-z0-9+/=]+( [^\n\r]*)?(?![\s\S])",
    r"^([0-9a-f]{2}:){5}[0-9a-f]{2}$",
    r"^[a-z]+(-[a-z]+)*$",
    r"^([a-z0-9-]+\.)*[a-z]+$",
    r"^((25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(25[0-5]|2[0-4]\d|1?\d?\d)$",
    r"^(\d{1,3}\.){3}\d{1,3}$",
    "^.+$",
    "^(yes|no|auto)$",
    r"^(\+)?([0-9]+)$",
    r"^.+:.+$",
    "(a++)+b",
]


@pytest.mark.parametrize("pattern", SLOW)
def test_a_loop_that_can_be_shared_out_in_many_ways_is_refused(pattern: str) -> None:
    assert find_pattern_fault(pattern)


@pytest.mark.parametrize("pattern", TAKEN)
def test_what_people_write_is_taken(pattern: str) -> None:
    assert find_pattern_fault(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "longest"),
    [
        (r"^[a-z0-9@.-]+ [A-Za-z0-9+/=]+( [^\n\r]*)?(?![\s\S])", 16384),
        ("^.*$", 16384),
        ("a*b", 4096),
        ("^.+:.+$", 2048),
        ("^.*a.*b.*$", 256),
        ("^.*.*.*.*.*$", 64),
        ("^(x*y)?x*x*$", 2048),
        ("(", 4096),
    ],
)
def test_the_more_loops_take_the_same_the_shorter_is_the_text(pattern: str, longest: int) -> None:
    assert longest_text(pattern) == longest


def test_the_schema_of_an_attrib_has_no_pattern_that_could_take_long() -> None:
    schemas: list[JsonObject] = [{"pattern": "^(a+)+$"}, {"allOf": [{"patternProperties": {"^(a+)+$": {}}}]}]
    for schema in schemas:
        fault = find_schema_fault(schema)
        assert fault is not None
        assert "could take very long" in fault.reason


def test_a_value_is_tried_on_its_pattern_as_far_as_that_is_quick() -> None:
    schema: JsonObject = {"pattern": "^.+:.+$"}
    assert find_value_fault(schema, "a:b") is None
    assert find_value_fault(schema, "ab") == SchemaFault((), "'ab' does not match '^.+:.+$'", mock.ANY, "ab")
    fault = find_value_fault(schema, "a" * 3000)
    assert fault is not None
    assert "more characters than its pattern is tried on" in fault.reason
