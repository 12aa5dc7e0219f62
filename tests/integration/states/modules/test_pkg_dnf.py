"""`pkg` against real dnf and rpm, in an installroot of its own."""

import os
from pathlib import Path

import pytest
from tests.support.states.package_repositories import Deb, dnf_root, rpm_repository
from tests.support.states.state_functions import Run

from rackwright.states.module import StateError
from rackwright.states.support.packages import packages

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="rpm wants root")

A, B = "rackwright-test-a", "rackwright-test-b"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rpm_repository(
        tmp_path_factory.mktemp("repository"), Deb(A, "1.0"), Deb(A, "2.0"), Deb(B, depends=A), Deb("rackwright-test-c")
    )


@pytest.fixture
def root(tmp_path: Path, repository: Path) -> str:
    return str(dnf_root(tmp_path / "root", repository))


def test_dnf_installs_upgrades_downgrades_and_removes(root: str) -> None:
    run = Run()
    common = {"root": root, "provider": "dnf"}
    assert run.apply("pkg.installed", name=A, version="1.0", **common).changes == {A: {"old": "", "new": "1.0-1"}}
    assert run.apply("pkg.latest", name=A, **common).changes == {A: {"old": "1.0-1", "new": "2.0-1"}}
    assert run.apply("pkg.installed", name=A, version="<2", **common).changes == {A: {"old": "2.0-1", "new": "1.0-1"}}
    assert (Path(root) / "usr/share" / A / "version").read_text() == "1.0\n"
    assert run.apply("pkg.removed", name=A, **common).changes == {A: {"old": "1.0-1", "new": ""}}


def test_dnf_merges_states(root: str) -> None:
    run = Run()
    wanted = [B, "rackwright-test-c"]
    results = run.batch("pkg.installed", *({"name": name, "root": root, "provider": "dnf"} for name in wanted))
    assert [result.ok for result in results] == [True, True]
    assert results[0].changes == {A: {"old": "", "new": "2.0-1"}, B: {"old": "", "new": "1.0-1"}}
    assert len(packages("dnf", root, run.context()).transactions) == 1


def test_dnf_says_which_package_it_does_not_know(root: str) -> None:
    with pytest.raises(StateError, match="rackwright-test-nosuch"):
        Run().apply("pkg.installed", name="rackwright-test-nosuch", root=root, provider="dnf")


def test_dnf_names_the_versions_there_are(root: str) -> None:
    with pytest.raises(StateError, match=r"no version of .*-a fits '3'; there are 2\.0-1, 1\.0-1"):
        Run().apply("pkg.installed", name=A, version="3", root=root, provider="dnf")
