"""Whether a version is what was asked for."""

import pytest

from rackwright.states.support.packages.versions import compare_deb, compare_rpm, satisfies


def test_an_rpm_version_without_release_fits_every_release() -> None:
    assert compare_rpm("1.0-3.el9", "1.0") == 0
    assert compare_rpm("1:1.0-3", "1.0-3") == 1


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("1.2.3", "1.2.3", True),
        ("1.2.3", "1.2", False),
        ("1.2.3", "1.2*", True),
        ("1.2.3", ">=1.2, <1.3", True),
        ("1.3", ">=1.2,<1.3", False),
        ("1.3", "!=1.3", False),
        ("1.3", "== 1.3", True),
    ],
)
def test_satisfies(version: str, wanted: str, fits: bool) -> None:
    assert satisfies(version, wanted, compare_deb) is fits
