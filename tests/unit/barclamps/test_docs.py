"""The documentation of barclamp files says what the parser does."""

import re
from pathlib import Path

import pytest
from tests.support.barclamp_fit import check_fit

from rackwright.barclamps.loader import built_in, known_kinds
from rackwright.domain.barclamps import barclamp_file as files
from rackwright.domain.barclamps.barclamp_file import parse_barclamp
from rackwright.domain.catalogue import EXCLUDES, Flag

PAGE = (Path(__file__).parents[3] / "docs" / "barclamps.md").read_text()


def test_example_is_a_barclamp_that_fits_the_built_in_ones() -> None:
    examples = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len(examples) == 1
    example = parse_barclamp(examples[0], "docs/barclamps.md", known_kinds())
    check_fit([*built_in(), example])
    assert len(example.roles) == 4


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n", 1)[1].split("\n##", 1)[0]


@pytest.mark.parametrize(
    ("title", "keys"),
    [
        ("The file", files.BARCLAMP_KEYS),
        ("Roles", files.ROLE_KEYS),
        ("Flags", tuple(flag.value for flag in Flag)),
        ("Attribs", files.ATTRIB_KEYS),
        ("Jigs and hammers", tuple(dict.fromkeys((*files.JIG_KEYS, *files.HAMMER_KEYS)))),
    ],
)
def test_tables_have_exactly_the_keys_there_are(title: str, keys: tuple[str, ...]) -> None:
    rows = re.findall(r"^\| (`.*?) \|", section(title), re.MULTILINE)
    assert sorted(key for row in rows for key in re.findall(r"`([^`]+)`", row)) == sorted(keys)


def test_page_names_the_flags_that_exclude_each_other() -> None:
    said = section("Flags").split("Not together", 1)[1]
    assert {flag for pair in EXCLUDES for flag in pair} == {flag for flag in Flag if f"`{flag}`" in said}
