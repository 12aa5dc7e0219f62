"""The one reader of YAML with lines, as state files and barclamps use it: same mistakes, each told in its words."""

import re
import subprocess
import sys

import pytest

from rackwright.domain.barclamps.marked_values import MAX_DEPTH, read_yaml
from rackwright.domain.errors import BarclampInvalid
from rackwright.states.reading.sls import parse_yaml
from rackwright.states.refusal import RunRefused

MISTAKES = [
    ("a: 1\n---\nb: 2\n", 2, "a second document (---) in one file", "A second document starts here"),
    (
        "a:\n  b: 1\n  c: 2\n  b: 3\n",
        4,
        "'b' is there twice (first on line 2)",
        "'b' is here twice; the first is on line 2",
    ),
    ("a: 1\n? [b]\n: 2\n", 2, "a mapping or a list cannot be a key", "A key must be text, not a list or a mapping."),
    ("a: 1\n? {b: c}\n: 2\n", 2, "a mapping or a list cannot be a key", "A key must be text, not a list or a mapping."),
    ("a: [1\nb: 2\n", 2, "not valid YAML: ", "This is no valid YAML: "),
    ("a: 1\nb: !!python/name:os.system {}\n", 2, "is not allowed in a state file", "Tags (tag:yaml.org,2002:python"),
]


@pytest.mark.parametrize(("text", "line", "of_states", "of_barclamps"), MISTAKES)
def test_a_mistake_is_refused_by_both_with_its_line(text: str, line: int, of_states: str, of_barclamps: str) -> None:
    with pytest.raises(RunRefused) as refused:
        parse_yaml(text, "x.sls")
    assert refused.value.problems[0].line == line
    assert of_states in refused.value.problems[0].text
    with pytest.raises(BarclampInvalid) as invalid:
        read_yaml(text, "x.yml")
    assert f"x.yml:{line}: " in str(invalid.value)
    assert of_barclamps in str(invalid.value)


def test_a_key_with_braces_is_told_as_it_is_written() -> None:
    with pytest.raises(RunRefused, match=re.escape("'{key}{0}' is there twice")):
        parse_yaml("'{key}{0}': 1\n'{key}{0}': 2\n", "x.sls")


def test_depth_is_bounded_where_strangers_write_and_free_where_nothing_recurses() -> None:
    def nested(depth: int) -> str:
        return "[" * depth + "]" * depth

    assert read_yaml(nested(MAX_DEPTH), "x.yml").line == 1
    with pytest.raises(BarclampInvalid, match=f"nested deeper than {MAX_DEPTH} levels"):
        read_yaml(nested(MAX_DEPTH + 1), "x.yml")
    assert isinstance(parse_yaml(nested(5 * MAX_DEPTH), "x.sls"), list)


def test_an_anchor_may_hold_what_it_lies_in_in_a_state_file_alone() -> None:
    read = parse_yaml("a: &a [1, *a]\n", "x.sls")
    assert read["a"][1] is read["a"]
    with pytest.raises(BarclampInvalid, match="Anchors and aliases"):
        read_yaml("a: &a [1, *a]\n", "x.yml")


def test_the_reader_travels_alone_and_loads_the_parser_only_to_read() -> None:
    script = (
        "import sys; import rackwright.states.reading.yaml_lines;"
        "print(*sorted(name for name in sys.modules if name.split('.')[0] in ('rackwright', 'yaml')))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [
        "rackwright",
        "rackwright.states",
        "rackwright.states.reading",
        "rackwright.states.reading.yaml_lines",
    ]
