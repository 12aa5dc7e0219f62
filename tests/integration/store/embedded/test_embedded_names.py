"""The user that the embedded PostgreSQL runs as: an ordinary user, root in a namespace, or nobody."""

import os
import pwd
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.support.processes import AS_NOBODY, is_alive, postmaster_of
from tests.support.servers.postgres import ask, execute, sockets_of
from tests.support.servers.postgres_holder import Holder, HolderRefused
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")

NOBODY = pwd.getpwnam("nobody")
WITHOUT_NAMESPACES = [sys.executable, "-P", "-m", "tests.support.servers.no_namespaces"]


def owners(folder: Path) -> set[int]:
    return {path.lstat().st_uid for path in [folder, *folder.rglob("*")]}


def modes(path: Path) -> dict[Path, int]:
    return {folder: folder.stat().st_mode for folder in (path, *path.parents)}


@pytest.fixture
def private_home(public_folder: Path) -> Path:
    """A home that only root can reach."""
    (public_folder / "private").mkdir(mode=0o700)
    return public_folder / "private" / "home"


def test_an_ordinary_user_runs_it_as_itself(public_folder: Path) -> None:
    os.chown(public_folder, NOBODY.pw_uid, NOBODY.pw_gid)
    home = public_folder / "home"
    with Holder(home, AS_NOBODY) as holder:
        assert psutil.Process(postmaster_of(home)).uids().real == NOBODY.pw_uid
        assert owners(home) == {NOBODY.pw_uid}
        assert ask(holder.url, "SELECT 1") == "1"
        postmaster = postmaster_of(home)
        holder.kill()
        wait_until(lambda: not is_alive(postmaster), "the server stops")


def test_root_runs_it_in_a_namespace_where_it_owns_what_root_owns(private_home: Path) -> None:
    before = modes(private_home.parent)
    with Holder(private_home):
        postmaster = postmaster_of(private_home)
        assert psutil.Process(postmaster).uids().real == 0
        assert Path(f"/proc/{postmaster}/uid_map").read_text().split() == [str(NOBODY.pw_uid), "0", "1"]
        assert owners(private_home) == {0}
    assert modes(private_home.parent) == before


def test_without_namespaces_root_runs_it_as_nobody_and_opens_no_directory(private_home: Path) -> None:
    before = modes(private_home.parent)
    for rows in (0, 1):
        with Holder(private_home, WITHOUT_NAMESPACES) as holder:
            postmaster = psutil.Process(postmaster_of(private_home))
            assert postmaster.uids().real == NOBODY.pw_uid
            assert postmaster.gids().real == NOBODY.pw_gid
            execute(holder.url, "CREATE TABLE IF NOT EXISTS kept (value int)")
            assert ask(holder.url, "SELECT count(*) FROM kept") == str(rows)
            execute(holder.url, "INSERT INTO kept VALUES (1)")
            assert stat.S_IMODE(sockets_of(holder.url).stat().st_mode) == 0o700
            runtime = sockets_of(holder.url).parent
    wait_until(lambda: not runtime.exists(), "the copy of the programs is gone")
    assert modes(private_home.parent) == before


def test_run_as_nobody_it_lets_in_root_but_not_others_called_nobody(private_home: Path) -> None:
    psql = ["/usr/lib/postgresql/15/bin/psql", "-U", "rackwright", "-Atc", "SELECT 1", "rackwright", "-h"]
    with Holder(private_home, WITHOUT_NAMESPACES) as holder:
        command = [*psql, str(sockets_of(holder.url))]
        assert subprocess.run(command, capture_output=True, check=True).stdout == b"1\n"
        refused = subprocess.run([*AS_NOBODY, *command], capture_output=True, text=True, check=False)
        assert "Peer authentication failed" in refused.stderr


def test_run_as_nobody_its_server_stops_with_a_killed_user(private_home: Path) -> None:
    with Holder(private_home, WITHOUT_NAMESPACES) as holder:
        postmaster = postmaster_of(private_home)
        holder.kill()
        wait_until(lambda: not is_alive(postmaster), "the server stops")


def test_data_made_in_a_namespace_goes_on_without_one_and_back(private_home: Path) -> None:
    with Holder(private_home) as holder:
        execute(holder.url, "CREATE TABLE kept AS SELECT 7 AS value")
    with Holder(private_home, WITHOUT_NAMESPACES) as holder:
        assert ask(holder.url, "SELECT value FROM kept") == "7"
    with Holder(private_home) as holder:
        assert ask(holder.url, "SELECT value FROM kept") == "7"


def test_data_of_another_user_is_refused_by_name(public_folder: Path) -> None:
    home = public_folder / "home"
    with Holder(home):
        pass
    subprocess.run(["chown", "-R", "daemon", str(home / "postgres/18/data")], check=True)
    with pytest.raises(HolderRefused, match="user daemon, but this is user root"):
        Holder(home).wait_joined()
