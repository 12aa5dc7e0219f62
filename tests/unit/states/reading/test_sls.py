"""YAML with positions: the quick reader and the whole parser must never disagree, and errors must name their line."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rackwright.states.reading import quick_yaml
from rackwright.states.reading.sls import Map, Seq, StateFileReader, parse_with_pyyaml, parse_yaml
from rackwright.states.refusal import RunRefused

CASES = Path(__file__).parents[1] / "cases"


def with_lines(value: Any) -> Any:
    """A value together with all the lines it knows."""
    if isinstance(value, Map):
        return ("map", value.line, [(key, value.line_of(key), with_lines(inner)) for key, inner in value.items()])
    if isinstance(value, Seq):
        return ("seq", value.line, [(value.line_of(index), with_lines(inner)) for index, inner in enumerate(value)])
    return (type(value).__name__, repr(value))


def both(text: str) -> None:
    """Whatever the quick reader reads at all, it reads as the whole parser does."""
    builder = StateFileReader("x.sls", None)
    try:
        quickly = quick_yaml.read_plain_yaml(text, builder.source_line)
    except quick_yaml.NeedsFullParser:
        return
    assert with_lines(quickly) == with_lines(parse_with_pyyaml(text, StateFileReader("x.sls", None))), text


@pytest.mark.parametrize("path", sorted(CASES.rglob("*.sls")), ids=lambda path: str(path.relative_to(CASES)))
def test_quick_reader_agrees_on_every_case(path: Path) -> None:
    if "{%" not in path.read_text() and "{{" not in path.read_text():
        both(path.read_text())


SCALARS = st.one_of(
    st.text("ab01-_:#'\" \\.,[]{}&*!|>%@`~?<=/+eE\n", max_size=12),
    st.sampled_from(
        ["yes", "No", "null", "~", "0644", "0x1F", "1e3", "1.5", ".5", "-3", "2024-01-02", "1_000", "on", "a: b"]
    ),
    st.integers(-1000, 1000),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False, allow_infinity=False, width=16),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("ab-_ .:#'1", min_size=1, max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(VALUES, st.sampled_from([None, True, False]), st.sampled_from([None, "|", "'", '"']), st.integers(2, 4))
def test_quick_reader_agrees_on_whatever_pyyaml_writes(value: Any, flow: Any, style: Any, indent: int) -> None:
    both(yaml.safe_dump(value, default_flow_style=flow, default_style=style, indent=indent, width=1000))


PIECES = """
a:|b: 1|- x|  - y|  c: d|- k: v|  m:|    - n|# note|  # note|e: |f: |g: 'q'|h: "r"|i: [1, two]|j: {k: v}|l: |-|   text
|     more||o: >|p: &x y|q: *x|- - deep|r: a: b|s: t # u|'v': w|? z|- |[x]|{y: 1}|  |m: -|n: - x|: x|a b: c d|--- |word
|  word|    word|  'quoted'|- [a]: b|u: {a: [b, {c: d}]}|v: |
"""
LINES = st.lists(st.sampled_from(PIECES.replace("\n", "").split("|")), max_size=9)


@settings(max_examples=400, deadline=None)
@given(LINES)
def test_quick_reader_agrees_on_lines_thrown_together(lines: list[str]) -> None:
    text = "\n".join(lines)
    builder = StateFileReader("x.sls", None)
    try:
        quickly = quick_yaml.read_plain_yaml(text, builder.source_line)
    except quick_yaml.NeedsFullParser:
        return
    try:
        whole = parse_with_pyyaml(text, StateFileReader("x.sls", None))
    except RunRefused as refused:
        raise AssertionError(f"read {quickly!r} from what is not YAML: {text!r}") from refused
    assert with_lines(quickly) == with_lines(whole), text


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a:\n  test.nop\na:\n  test.nop\n", 3, "'a' is there twice (first on line 1)"),
        ("a: [1\nb: 2\n", 2, "not valid YAML"),
        ("a:\n  - b: c\n d: e\n", 3, "not valid YAML"),
        ("a: !!python/object:os.system x\n", 1, "tag"),
        ("a: *nobody\n", 1, "nobody"),
        ("a: 1\n---\nb: 2\n", 2, "second document"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(RunRefused) as refused:
        parse_yaml(text, "x.sls")
    problem = refused.value.problems[0]
    assert (problem.file, problem.line) == ("x.sls", line)
    assert message in problem.text


def test_merge_keys_and_aliases_are_read_and_own_keys_win() -> None:
    text = "base: &base\n  a: 1\n  b: 2\nown:\n  <<: *base\n  b: 3\n"
    assert parse_yaml(text, "x.sls")["own"] == {"a": 1, "b": 3}


def test_numbers_with_leading_zeros_stay_decimal_and_dates_stay_text() -> None:
    assert parse_yaml("mode: 0644\nwhen: 2024-01-02\n", "x.sls") == {"mode": 644, "when": "2024-01-02"}
