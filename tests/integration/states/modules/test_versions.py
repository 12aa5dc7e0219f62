"""Versions are ordered as dpkg and rpm order them."""

import subprocess

import pytest

from rackwright.states.support.packages.versions import compare_deb, compare_rpm

DEB = [
    ("1.0", "1.0-0"),
    ("1.0", "1.0-1"),
    ("1.0~rc1", "1.0"),
    ("1.0~~", "1.0~"),
    ("1.0+b1", "1.0"),
    ("1.0a", "1.0+"),
    ("1:0.9", "2.0"),
    ("1.10", "1.9"),
    ("1.01", "1.1"),
    ("2.0-1~bpo12+1", "2.0-1"),
    ("1.0-1ubuntu2", "1.0-1"),
    ("0.0.0", "0"),
    ("1.2.3-4-5", "1.2.3-4-6"),
    ("7.a", "7.1"),
]
RPM = [
    ("1.0", "1.0.1"),
    ("1.0~rc1", "1.0"),
    ("1.0^git1", "1.0"),
    ("1.0^git1", "1.0.1"),
    ("1.0~rc1^git1", "1.0~rc1"),
    ("1.10", "1.9"),
    ("1.0a", "1.0"),
    ("1.0a", "1.0.1"),
    ("2.50", "2.5"),
    ("FC5", "fc4"),
    ("1_0", "1.0"),
    ("10abc", "10.1abc"),
]


@pytest.mark.parametrize(("one", "other"), DEB)
def test_debian_order_is_dpkgs_own(one: str, other: str) -> None:
    def dpkg(relation: str) -> bool:
        return subprocess.run(["dpkg", "--compare-versions", one, relation, other]).returncode == 0

    expected = 1 if dpkg("gt") else -1 if dpkg("lt") else 0
    order = compare_deb(one, other)
    assert (order > 0) - (order < 0) == expected
    assert compare_deb(other, one) == -order


@pytest.mark.parametrize(("one", "other"), RPM)
def test_rpm_order_is_rpms_own(one: str, other: str) -> None:
    lua = f"%{{lua: print(rpm.vercmp('{one}', '{other}'))}}"
    expected = int(subprocess.run(["rpm", "--eval", lua], check=True, capture_output=True, text=True).stdout)
    assert compare_rpm(one, other) == expected
    assert compare_rpm(other, one) == -expected
