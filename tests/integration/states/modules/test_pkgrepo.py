"""`pkgrepo` against real apt and dnf: signed repositories, in roots of their own."""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.states.package_repositories import (
    Deb,
    apt_repository,
    apt_root,
    dnf_root,
    rpm_repository,
    sign_apt_repository,
)
from tests.support.states.state_functions import Run

from rackwright.states.module import StateError
from rackwright.states.plan import build_plan
from rackwright.states.reading.tree import locate_tree
from rackwright.states.running.execution import PlanExecution as EngineRun
from rackwright.states.support.packages import packages

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="apt and dnf want root")

A = "rackwright-test-a"


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("signed")
    repository = apt_repository(folder / "repository", Deb(A, "3.0"))
    return repository, sign_apt_repository(repository, folder / "gnupg")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return apt_root(tmp_path / "root")


def sources(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (root / "etc/apt/sources.list.d").iterdir()}


@pytest.mark.parametrize("deb822", [False, True])
def test_a_signed_repository_is_added_refreshed_and_installed_from(
    root: Path, signed: tuple[Path, str], deb822: bool
) -> None:
    repository, key = signed
    run = Run()
    arguments = {"name": f"deb file:{repository} ./", "root": str(root), "key_text": key, "deb822": deb822}
    changes = run.apply("pkgrepo.managed", **arguments).changes
    keyring, source = changes
    assert keyring.startswith("/etc/apt/keyrings/")
    assert (root / keyring.lstrip("/")).read_text().startswith("-----BEGIN PGP PUBLIC KEY")
    word = "Signed-By: " if deb822 else "signed-by="
    assert f"{word}{keyring}" in (root / source.lstrip("/")).read_text()
    assert run.apply("pkg.installed", name=A, root=str(root)).changes == {A: {"old": "", "new": "3.0"}}


def test_a_repository_with_the_wrong_key_is_taken_back(root: Path, signed: tuple[Path, str], tmp_path: Path) -> None:
    other = apt_repository(tmp_path / "other", Deb("rackwright-test-z"))
    wrong = sign_apt_repository(other, tmp_path / "gnupg")
    with pytest.raises(StateError, match=r"taken back.*(NO_PUBKEY|not signed)"):
        Run().apply("pkgrepo.managed", name=f"deb file:{signed[0]} ./", root=str(root), key_text=wrong)
    assert sources(root) == {}
    assert list((root / "etc/apt/keyrings").iterdir()) == []


def test_a_key_comes_from_the_state_tree(root: Path, signed: tuple[Path, str], tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "repo.asc").write_text(signed[1])
    run = Run(root=tmp_path)
    run.apply("pkgrepo.managed", name=f"deb file:{signed[0]} ./", root=str(root), key_url="salt://keys/repo.asc")
    assert len(list((root / "etc/apt/keyrings").iterdir())) == 1


def test_an_entry_in_a_shared_file_is_changed_and_others_stay(root: Path) -> None:
    path = root / "etc/apt/sources.list.d/shared.list"
    other = "deb http://mirror.example.org/debian stable main # kept"
    path.write_text(f"# mine\n{other}\ndeb http://repo.example.org/x/ stable old\n")
    run = Run()
    arguments: dict[str, Any] = {"file": "/etc/apt/sources.list.d/shared.list", "root": str(root), "refresh": False}
    run.apply("pkgrepo.managed", name="deb http://repo.example.org/x stable main extra", **arguments)
    assert path.read_text() == f"# mine\n{other}\ndeb http://repo.example.org/x stable main extra\n"
    run.apply("pkgrepo.managed", name="deb http://repo.example.org/x stable main", disabled=True, **arguments)
    assert path.read_text().endswith("# deb http://repo.example.org/x stable main\n")
    run.apply("pkgrepo.absent", name="deb http://repo.example.org/x stable", root=str(root))
    assert path.read_text() == f"# mine\n{other}\n"


def test_absent_removes_the_file_and_the_key_made_for_it(root: Path, signed: tuple[Path, str]) -> None:
    run = Run()
    arguments = {"name": f"deb file:{signed[0]} ./", "root": str(root)}
    run.apply("pkgrepo.managed", key_text=signed[1], deb822=True, **arguments)
    changes = run.apply("pkgrepo.absent", **arguments).changes
    assert set(changes.values()) == {"removed"}
    assert sources(root) == {}
    assert list((root / "etc/apt/keyrings").iterdir()) == []


def test_several_repositories_share_one_refresh(root: Path, tmp_path: Path) -> None:
    run = Run()
    names = [apt_repository(tmp_path / name, Deb(f"rackwright-test-{name}")) for name in ("one", "two", "three")]
    results = run.batch(
        "pkgrepo.managed", *({"name": f"deb file:{name} ./", "trusted": True, "root": str(root)} for name in names)
    )
    assert [result.ok for result in results] == [True, True, True]
    assert sum("refreshing the package lists with apt-get update" in line for line in run.lines) == 1
    assert packages("", str(root), run.context()).refreshed, "the first package state need not refresh again"


@pytest.mark.parametrize(("mode", "refreshes"), [("ansible", 4), ("genius", 1)])
def test_genius_refreshes_once_for_all_repositories_and_the_packages_behind_them(
    root: Path, tmp_path: Path, mode: str, refreshes: int
) -> None:
    lines = []
    for name in ("one", "two", "three"):
        folder = apt_repository(tmp_path / name, Deb(f"rackwright-test-{name}"))
        lines.append(f"rackwright-test-{name}:\n  pkg.installed:\n    - root: {root}\n")
        options = f"    - name: deb file:{folder} ./\n    - trusted: true\n    - root: {root}\n    - order: first\n"
        lines.append(f"repo-{name}:\n  pkgrepo.managed:\n{options}")
    (tmp_path / "web.sls").write_text("".join(lines))
    lines_of_log: list[str] = []
    run = EngineRun(
        build_plan(*locate_tree(tmp_path / "web.sls")),
        mode,
        event=lambda kind, _, detail: lines_of_log.append(str(detail)),
    )
    assert {record.outcome.value for record in run.execute().records} == {"changed"}
    assert len(packages("", str(root), run.context(run.plan.states[0])).transactions) == (1 if mode == "genius" else 3)
    assert sum("refreshing the package lists with apt-get update" in line for line in lines_of_log) == refreshes


def install_from(root: Path, folder: Path, before: dict[str, str], states: str = "") -> list[str]:
    """What the log says when one repository, and then a package of it, are brought about in genius mode."""
    for name, line in before.items():
        (root / "etc/apt/sources.list.d" / name).write_text(line)
    repository = apt_repository(folder / "one", Deb("rackwright-test-one"))
    source = (
        f"repo:\n  pkgrepo.managed:\n    - name: deb file:{repository} ./\n    - trusted: true\n    - root: {root}\n"
    )
    package = f"rackwright-test-one:\n  pkg.installed:\n    - provider: apt\n    - root: {root}/\n"
    (folder / "web.sls").write_text(states + source + package)
    lines: list[str] = []
    plan = build_plan(*locate_tree(folder / "web.sls"))
    run = EngineRun(plan, "genius", event=lambda kind, _, detail: lines.append(str(detail)))
    assert {record.outcome.value for record in run.execute().records} == {"changed"}
    return [line for line in lines if "refreshing the package lists with apt-get update" in line]


def test_genius_fetches_the_lists_once_also_for_a_single_repository(root: Path, tmp_path: Path) -> None:
    assert len(install_from(root, tmp_path, {})) == 1


def test_genius_adds_a_repository_although_another_cannot_be_read(root: Path, tmp_path: Path) -> None:
    broken = {"broken.list": f"deb [trusted=yes] file:{tmp_path}/nowhere ./\n"}
    assert len(install_from(root, tmp_path, broken)) >= 2, "it is tried alone"


def test_genius_fetches_no_list_again_for_a_repository_that_waits_for_another(root: Path, tmp_path: Path) -> None:
    first = apt_repository(tmp_path / "first", Deb("rackwright-test-first"))
    states = f"base:\n  pkgrepo.managed:\n    - name: deb file:{first} ./\n    - trusted: true\n    - root: {root}\n"
    refreshes = install_from(root, tmp_path, {}, f"{states}    - require_in: [{{pkgrepo: repo}}]\n")
    assert len(refreshes) == 2
    assert "only" in refreshes[1], "of the second one, its own lists alone"


def test_a_batch_with_a_bad_repository_leaves_nothing_behind(root: Path, tmp_path: Path) -> None:
    good = apt_repository(tmp_path / "good", Deb("rackwright-test-good"))
    addresses = [f"deb file:{good} ./", f"deb file:{tmp_path}/nowhere ./"]
    arguments = ({"name": name, "trusted": True, "root": str(root)} for name in addresses)
    results = Run().batch("pkgrepo.managed", *arguments)
    assert [result.ok for result in results] == [False, False]
    assert sources(root) == {}


def test_dnf_repository_is_added_used_and_removed(tmp_path: Path) -> None:
    repository = rpm_repository(tmp_path / "repository", Deb(A, "3.0"))
    root = dnf_root(tmp_path / "root")
    run = Run()
    common = {"root": str(root), "provider": "dnf"}
    run.apply("pkgrepo.managed", name="local", baseurl=f"file://{repository}", gpgcheck=False, **common)
    assert "[local]\nname=local\nbaseurl=file://" in (root / "etc/yum.repos.d/local.repo").read_text()
    assert run.apply("pkg.installed", name=A, **common).changes == {A: {"old": "", "new": "3.0-1"}}
    run.apply("pkgrepo.absent", name="local", **common)
    assert not (root / "etc/yum.repos.d/local.repo").exists()


def test_dnf_repository_that_cannot_be_read_is_taken_back(tmp_path: Path) -> None:
    root = dnf_root(tmp_path / "root")
    with pytest.raises(StateError, match="taken back"):
        Run().apply("pkgrepo.managed", name="bad", baseurl=f"file://{tmp_path}/no", root=str(root), provider="dnf")
    assert list((root / "etc/yum.repos.d").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "http://no.type.example"}, "no repository for apt"),
        ({"name": "deb http://x ./", "file": "/etc/apt/sources.list.d/x.conf"}, "would not be read"),
        ({"name": "deb http://x ./", "key_url": "http://x/key"}, "needs key_hash"),
        ({"name": "deb http://x ./", "key_url": "a", "key_text": "b"}, "both given"),
    ],
)
def test_bad_arguments_are_refused(root: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(StateError, match=message):
        Run().apply("pkgrepo.managed", root=str(root), **arguments)
