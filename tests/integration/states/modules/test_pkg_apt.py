"""`pkg` against real apt and dpkg, with real packages in a repository the test makes, in a root of its own."""

import os
from pathlib import Path

import pytest
from tests.support.states.package_repositories import Deb, apt_repository, apt_root
from tests.support.states.state_functions import Run

from rackwright.states.module import StateError
from rackwright.states.plan import build_plan
from rackwright.states.reading.tree import locate_tree
from rackwright.states.running.execution import PlanExecution as EngineRun
from rackwright.states.running.record import Record
from rackwright.states.support.packages import Packages, packages

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="dpkg wants root")

A, B, C = "rackwright-test-a", "rackwright-test-b", "rackwright-test-c"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return apt_repository(
        tmp_path_factory.mktemp("repository"),
        Deb(A, "1.0"),
        Deb(A, "1.5"),
        Deb(A, "2.0"),
        Deb(B, depends=C, provides="rackwright-test-virtual"),
        Deb(C),
        Deb("rackwright-test-broken", depends="rackwright-test-nowhere"),
        *(Deb(f"rackwright-test-many{number}") for number in range(5)),
    )


@pytest.fixture
def root(tmp_path: Path, repository: Path) -> str:
    return str(apt_root(tmp_path / "root", repository))


@pytest.fixture
def run() -> Run:
    return Run()


def view(run: Run, root: str) -> Packages:
    return packages("", root, run.context())


def view_of(run: EngineRun, root: str) -> Packages:
    return packages("", root, run.context(run.plan.states[0]))


def test_installed_installs_with_dependencies_and_says_both(run: Run, root: str) -> None:
    result = run.apply("pkg.installed", name=B, root=root)
    assert result.changes == {B: {"old": "", "new": "1.0"}, C: {"old": "", "new": "1.0"}}
    assert (Path(root) / "usr/share" / B / "version").read_text() == "1.0"


def test_dry_run_says_the_version_and_installs_nothing(run: Run, root: str) -> None:
    run.apply("pkg.installed", name=C, root=root)
    check = run.check("pkg.installed", name=A, root=root)
    assert check.changes == {A: {"old": "", "new": "2.0"}}
    assert not (Path(root) / "usr/share" / A).exists()


def test_an_installed_package_is_unchanged_and_the_database_is_read_once(run: Run, root: str) -> None:
    run.apply("pkg.installed", name=A, root=root)
    again = Run()
    for _ in range(20):
        assert again.apply("pkg.installed", name=A, root=root).changes == {}
    assert view(again, root).reads == 1
    assert view(again, root).transactions == []


@pytest.mark.parametrize(
    ("wanted", "gets"), [("1.0", "1.0"), ("1.*", "1.5"), ("<2", "1.5"), (">=1.0,<1.5", "1.0"), ("latest", "2.0")]
)
def test_version_may_be_exact_a_glob_or_comparisons(run: Run, root: str, wanted: str, gets: str) -> None:
    assert run.apply("pkg.installed", name=A, version=wanted, root=root).changes == {A: {"old": "", "new": gets}}


def test_a_named_version_downgrades_and_latest_upgrades(run: Run, root: str) -> None:
    run.apply("pkg.installed", name=A, root=root)
    assert run.apply("pkg.installed", name=A, version="1.5", root=root).changes[A] == {"old": "2.0", "new": "1.5"}
    assert run.apply("pkg.installed", name=A, root=root).changes == {}, "any version is fine if none is named"
    assert run.apply("pkg.latest", name=A, root=root).changes[A] == {"old": "1.5", "new": "2.0"}


def test_a_version_that_is_nowhere_names_those_there_are(run: Run, root: str) -> None:
    with pytest.raises(StateError, match=r"no version of .*-a fits '9\.9'; there are 2\.0, 1\.5, 1\.0"):
        run.apply("pkg.installed", name=A, version="9.9", root=root)


def test_an_unknown_package_fails_with_apts_reason(run: Run, root: str) -> None:
    with pytest.raises(StateError, match="Unable to locate package rackwright-test-nosuch"):
        run.apply("pkg.installed", name="rackwright-test-nosuch", root=root)


def test_pkgs_takes_names_and_versions_in_one_transaction(run: Run, root: str) -> None:
    changes = run.apply("pkg.installed", name="tools", pkgs=[{A: "1.5"}, C], root=root).changes
    assert changes == {A: {"old": "", "new": "1.5"}, C: {"old": "", "new": "1.0"}}
    assert view(run, root).transactions == [(A, C)]


def test_a_virtual_package_counts_as_installed(run: Run, root: str) -> None:
    run.apply("pkg.installed", name=B, root=root)
    assert run.apply("pkg.installed", name="rackwright-test-virtual", root=root).changes == {}


def test_a_name_with_the_native_architecture_is_the_same_package(run: Run, root: str) -> None:
    run.apply("pkg.installed", name=A, root=root)
    assert run.apply("pkg.installed", name=f"{A}:all", root=root).changes == {}


def test_removed_leaves_configuration_and_purged_does_not(run: Run, root: str) -> None:
    run.apply("pkg.installed", name=A, root=root)
    configuration = Path(root) / "etc" / f"{A}.conf"
    assert run.apply("pkg.removed", name=A, root=root).changes == {A: {"old": "2.0", "new": ""}}
    assert configuration.exists()
    assert run.apply("pkg.purged", name=A, root=root).changes[A]["new"] == ""
    assert not configuration.exists()
    assert run.apply("pkg.purged", name=A, root=root).changes == {}


def test_a_held_package_is_left_alone_until_told_otherwise(run: Run, root: str) -> None:
    changes = run.apply("pkg.installed", name=A, version="1.0", hold=True, root=root).changes
    assert changes[A]["hold"] == {"old": False, "new": True}
    with pytest.raises(StateError, match="update_holds: true"):
        run.apply("pkg.latest", name=A, root=root)
    assert run.apply("pkg.latest", name=A, update_holds=True, root=root).changes[A]["new"] == "2.0"


def test_several_states_become_one_transaction(run: Run, root: str) -> None:
    names = [f"rackwright-test-many{number}" for number in range(5)]
    results = run.batch("pkg.installed", *({"name": name, "root": root} for name in [*names, B]))
    assert all(result.ok for result in results)
    assert [list(result.changes) for result in results] == [[names[0], C], *([name] for name in names[1:]), [B]]
    assert len(view(run, root).transactions) == 1
    assert view(run, root).reads == 2, "once before and once after the transaction"


def engine(tmp_path: Path, text: str, mode: str) -> tuple[dict[str, Record], EngineRun]:
    (tmp_path / "web.sls").write_text(text)
    run = EngineRun(build_plan(*locate_tree(tmp_path / "web.sls")), mode)
    return {record.id: record for record in run.execute().records}, run


def pkg_states(names: list[str], root: str) -> str:
    return "".join(f"{name}:\n  pkg.installed:\n    - root: {root}\n" for name in names)


@pytest.mark.parametrize(("mode", "transactions"), [("ansible", 5), ("genius", 1)])
def test_genius_makes_one_transaction_of_what_takes_five(
    root: str, tmp_path: Path, mode: str, transactions: int
) -> None:
    names = [f"rackwright-test-many{number}" for number in range(5)]
    records, run = engine(tmp_path, pkg_states(names, root), mode)
    assert {name: record.changes for name, record in records.items()} == {
        name: {name: {"old": "", "new": "1.0"}} for name in names
    }
    assert len(view_of(run, root).transactions) == transactions


def test_a_failed_merged_transaction_falls_back_to_single_ones(root: str, tmp_path: Path) -> None:
    records, run = engine(tmp_path, pkg_states([A, "rackwright-test-broken", C], root), "genius")
    assert {name: record.result for name, record in records.items()} == {
        A: True,
        "rackwright-test-broken": False,
        C: True,
    }
    assert "rackwright-test-nowhere" in records["rackwright-test-broken"].comment
    assert records[A].changes == {A: {"old": "", "new": "2.0"}}
    assert len(view_of(run, root).transactions) == 4


def test_the_lists_are_refreshed_once_a_run(run: Run, root: str) -> None:
    run.apply("pkg.installed", name=A, root=root)
    run.apply("pkg.installed", name=C, root=root)
    assert sum("refreshing" in line for line in run.lines) == 1


def test_a_repository_that_is_away_does_not_stop_what_others_have(run: Run, root: str) -> None:
    with (Path(root) / "etc/apt/sources.list").open("a") as file:
        file.write("deb [trusted=yes] file:/nonexistent/repository ./\n")
    assert run.apply("pkg.installed", name=A, version="1.0", root=root).changes
    assert run.apply("pkg.latest", name=A, root=root).changes[A]["new"] == "2.0"
    assert any("going on with the package lists as they are" in line for line in run.lines)
    with pytest.raises(StateError, match="refreshing the package lists"):
        Run().apply("pkg.latest", name=A, refresh=True, root=root)


def test_an_interrupted_dpkg_is_finished_first(run: Run, root: str) -> None:
    run.apply("pkg.installed", name=C, root=root)
    status = (Path(root) / "var/lib/dpkg/status").read_text()
    # What a dpkg killed between unpacking and configuring leaves: a journal entry that apt refuses to overlook.
    (Path(root) / "var/lib/dpkg/updates/0001").write_text(status.replace("ok installed", "ok unpacked"))
    run.apply("pkg.installed", name=A, root=root)
    assert any("finishing an interrupted dpkg run" in line for line in run.lines)
    assert view(run, root).inventory().version(C) == "1.0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "--reinstall"}, "'--reinstall' is no package name"),
        ({"name": "x", "version": "1.0; rm -rf /"}, "is no version"),
        ({"name": "x", "pkgs": [A], "version": "1"}, "version cannot go with pkgs"),
        ({"name": "x", "pkgs": [["a"]]}, "neither a name nor NAME: VERSION"),
        ({"name": "x", "provider": "zypper"}, "must be one of"),
    ],
)
def test_bad_arguments_are_refused(run: Run, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(StateError, match=message):
        run.apply("pkg.installed", **arguments)
