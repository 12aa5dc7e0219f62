"""What `--range` of `rackwright network create` understands: IPv4 and IPv6, with a use and without."""

import pytest

from rackwright.cli.commands.network import parse_range
from rackwright.cli.output.exits import Exit


@pytest.mark.parametrize(
    ("text", "first", "last", "use"),
    [
        ("host:10.0.0.10-10.0.0.99", "10.0.0.10", "10.0.0.99", None),
        ("host:10.0.0.10-10.0.0.99:dynamic", "10.0.0.10", "10.0.0.99", "dynamic"),
        ("host:fd00::10-fd00::ff", "fd00::10", "fd00::ff", None),
        ("host:fd00::10-fd00::99", "fd00::10", "fd00::99", None),
        ("host:fd00::a-fd00::f:ad:admin", "fd00::a", "fd00::f:ad", "admin"),
    ],
)
def test_range_is_read(text: str, first: str, last: str, use: str | None) -> None:
    expected = {"name": "host", "first": first, "last": last}
    assert parse_range(text) == (expected | {"use": use} if use else expected)


@pytest.mark.parametrize("text", ["10.0.0.10-10.0.0.99", "host:10.0.0.10", "host:", "", "host:10.0.0.10-dynamic"])
def test_other_text_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_range(text)
    assert ended.value.code == Exit.USAGE
    assert "NAME:FIRST-LAST" in capsys.readouterr().err
