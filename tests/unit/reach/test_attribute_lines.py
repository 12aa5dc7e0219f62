"""Attributes written as lines, and lines read as a wall. That shells agree with it is shown against real ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.masking import Mask
from rackwright.reach.attribute_lines import BadAttribute, attribute_lines, parse_wall

# What is escaped, what escapes are made of, and some that are neither.
TEXT = st.text(st.sampled_from('/~\\\t\n\rnt01 "é'), max_size=6)
TREES = st.dictionaries(
    TEXT,
    st.recursive(TEXT, lambda below: st.dictionaries(TEXT, below, min_size=1, max_size=3), max_leaves=6),
    max_size=3,
)


@given(TREES)
def test_strings_of_any_tree_come_back_from_their_lines(tree: JsonObject) -> None:
    leaves = [line for line in attribute_lines(tree) if line.split("\t")[1] == "s"]
    assert parse_wall("\n".join(leaves) + "\n", {}) == tree


@given(TREES)
def test_every_attribute_is_one_line_of_three_fields(tree: JsonObject) -> None:
    for line in attribute_lines(tree):
        assert "\n" not in line
        assert line.count("\t") == 2


@pytest.mark.parametrize(
    ("written", "sent", "wall"),
    [
        ("/a\ts\t5\n", {}, {"a": "5"}),
        ("/a\tj\t5\n", {}, {"a": 5}),
        ("/a/b\ts\tx\n/a/c\ts\ty\n", {}, {"a": {"b": "x", "c": "y"}}),
        ("/a\ts\tx\n/a\ts\ty\n", {}, {"a": "y"}),
        ("/a\ts\tx\n/a/b\ts\ty\n", {}, {"a": {"b": "y"}}),
        ("/a/0\ts\tx\n", {}, {"a": {"0": "x"}}),
        ("/a/0\ts\tx\n", {"a": ["p", "q"]}, {"a": ["x", "q"]}),
        ("/a/2\ts\tx\n", {"a": ["p", "q"]}, {"a": ["p", "q", "x"]}),
        ("/a/1/b\ts\tx\n", {"a": [{}, {"b": "q", "c": 1}]}, {"a": [{}, {"b": "x", "c": 1}]}),
        ("/a\tj\t[]\n/a/0\ts\tx\n", {"a": ["p", "q"]}, {"a": ["x"]}),
        ("", {"a": 1}, {}),
    ],
)
def test_what_was_written_becomes_the_wall(written: str, sent: JsonObject, wall: Json) -> None:
    assert parse_wall(written, sent) == wall


def test_the_input_is_left_as_it_was() -> None:
    sent: JsonObject = {"a": [{"b": "old"}]}
    parse_wall("/a/0/b\ts\tnew\n", sent)
    assert sent == {"a": [{"b": "old"}]}


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("/a/b\tj\t{oops\n", "write_attribute -j a/b: '{oops' is not JSON"),
        ("/a\tj\tNaN\n", "NaN is no JSON number"),
        ('/a\tj\t"\\\\ud800"\n', "is not JSON"),
        ('/a\tj\t["\\\\u0000"]\n', "a text holds no zero character"),
        ("/a/3\ts\tx\n", "'3' is no index into a list of 1; the next one is 1"),
        ("/a/x\ts\tx\n", "'x' is no index into a list of 1"),
    ],
)
def test_what_cannot_be_an_attribute_is_refused_by_name(written: str, complaint: str) -> None:
    with pytest.raises(BadAttribute) as caught:
        parse_wall(written, {"a": ["p"]})
    assert complaint in str(caught.value)


@pytest.mark.parametrize("written", ["{}", "/a\tj\t{}", "/{}" + "/x" * 200 + "\ts\t1"])
def test_what_is_shown_of_a_line_has_no_part_of_a_secret(written: str) -> None:
    secret = "a-password-that-is-long"
    with pytest.raises(BadAttribute) as caught:
        parse_wall(written.format("x" * 65 + secret) + "\n", {}, Mask([secret]).text)
    assert "a-pass" not in str(caught.value)
