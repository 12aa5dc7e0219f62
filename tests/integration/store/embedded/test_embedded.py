"""The embedded PostgreSQL: where it may live, who may use it, and how its users share it."""

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tests.support.processes import AS_NOBODY, is_alive, keeper_of, postmaster_of, processes_naming, starts_naming
from tests.support.servers.postgres import NO_SYNC, ask, execute, sockets_of
from tests.support.servers.postgres_holder import Holder
from tests.support.waiting import until, wait_until

from rackwright.store.database_errors import EmbeddedPostgresFailed
from rackwright.store.embedded.server import EmbeddedPostgres


async def test_it_keeps_what_was_committed_over_a_restart(home: Path) -> None:
    async with EmbeddedPostgres(home, NO_SYNC) as server:
        execute(server.url, "CREATE TABLE kept AS SELECT 7 AS value")
    async with EmbeddedPostgres(home, NO_SYNC) as server:
        assert ask(server.url, "SELECT value FROM kept") == "7"
        assert ask(server.url, "SELECT current_user || '@' || current_database()") == "rackwright@rackwright"


async def test_it_is_durable_and_listens_on_no_network(home: Path) -> None:
    async with EmbeddedPostgres(home) as server:
        for setting, value in {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}.items():
            assert ask(server.url, f"SHOW {setting}") == value
        assert ask(server.url, "SHOW listen_addresses") == ""
        assert psutil.Process(postmaster_of(home)).net_connections("inet") == []


async def test_settings_are_passed_on_but_never_open_it_to_others(home: Path) -> None:
    settings = NO_SYNC | {"work_mem": "7MB", "listen_addresses": "*", "unix_socket_permissions": "0777"}
    async with EmbeddedPostgres(home, settings) as server:
        assert ask(server.url, "SHOW work_mem") == "7MB"
        assert ask(server.url, "SHOW listen_addresses") == ""
        assert ask(server.url, "SHOW unix_socket_permissions") == "0700"


async def test_it_leaves_no_process_and_no_socket_behind(home: Path) -> None:
    async with EmbeddedPostgres(home, NO_SYNC) as server:
        sockets, postmaster, keeper = sockets_of(server.url), postmaster_of(home), keeper_of(home)
    assert not is_alive(postmaster)
    assert not sockets.exists()
    wait_until(lambda: not is_alive(keeper), "the keeper ends")


async def test_a_private_parent_directory_keeps_its_mode_and_is_enough(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    parents = [private, *private.parents, *Path(sys.executable).parents]
    before = {path: path.stat().st_mode for path in parents}
    async with EmbeddedPostgres(private / "home", NO_SYNC) as server:
        assert ask(server.url, "SELECT 1") == "1"
    assert {path: path.stat().st_mode for path in parents} == before


async def test_a_home_too_deep_for_a_socket_gets_a_short_private_directory(tmp_path: Path) -> None:
    home = tmp_path / ("deep" * 20) / ("deeper" * 20)
    async with EmbeddedPostgres(home, NO_SYNC) as server:
        sockets = sockets_of(server.url)
        assert home not in sockets.parents
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        assert ask(server.url, "SELECT 1") == "1"
    assert not sockets.exists()


@pytest.mark.parametrize("name", ["one,two", """100% "größe" it's a&b?c#d+e"""])
async def test_a_home_may_have_any_name(tmp_path: Path, name: str) -> None:
    async with EmbeddedPostgres(tmp_path / name, NO_SYNC) as server:
        assert ask(server.url, "SELECT 1") == "1"


async def test_only_its_owner_can_reach_the_socket(home: Path) -> None:
    async with EmbeddedPostgres(home, NO_SYNC) as server:
        sockets = sockets_of(server.url)
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        assert sockets.stat().st_uid == os.geteuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
@pytest.mark.parametrize("depth", [1, 150], ids=["socket in the home", "socket elsewhere"])
def test_another_local_user_cannot_connect(depth: int, public_folder: Path) -> None:
    with Holder(public_folder / ("d" * depth)) as server:
        socket_path = str(sockets_of(server.url) / ".s.PGSQL.5432")
        connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        attempt = ["/usr/bin/python3", "-c", connect, socket_path]
        subprocess.run(attempt, check=True)
        refused = subprocess.run([*AS_NOBODY, *attempt], capture_output=True, text=True, check=False)
        assert "PermissionError" in refused.stderr


# Sharing


async def test_users_of_one_home_share_one_server_that_stops_with_the_last(home: Path) -> None:
    first, second = EmbeddedPostgres(home, NO_SYNC), EmbeddedPostgres(home, NO_SYNC)
    assert await first.start() == await second.start()
    postmaster = postmaster_of(home)
    await first.stop()
    assert ask(second.url, "SELECT 1") == "1"
    assert postmaster_of(home) == postmaster
    await second.stop()
    assert not is_alive(postmaster)


async def test_starts_at_once_on_a_new_home_share_one_server(home: Path) -> None:
    holders = [Holder(home) for _ in range(4)]
    try:
        assert len({holder.wait_joined().url for holder in holders}) == 1
        assert len(starts_naming(f"-D {home}")) == 1
        postmaster = postmaster_of(home)
        for holder in holders[:-1]:
            holder.leave()
        assert ask(holders[-1].url, "SELECT 1") == "1"
        holders[-1].leave()
        assert not is_alive(postmaster)
    finally:
        for holder in holders:
            holder.kill()


async def test_users_that_come_while_the_last_one_leaves_always_get_a_server(home: Path) -> None:
    async def come_and_go(user: int) -> None:
        for _ in range(8):
            async with EmbeddedPostgres(home, NO_SYNC) as server:
                await asyncio.to_thread(execute, server.url, f"INSERT INTO visits VALUES ({user})")

    async with EmbeddedPostgres(home, NO_SYNC) as server:
        execute(server.url, "CREATE TABLE visits (visitor int)")
    await asyncio.gather(*(come_and_go(user) for user in range(3)))
    async with EmbeddedPostgres(home, NO_SYNC) as server:
        assert ask(server.url, "SELECT count(*) FROM visits") == "24"


async def test_a_cancelled_start_holds_nothing(home: Path) -> None:
    starting = asyncio.create_task(EmbeddedPostgres(home, NO_SYNC).start())
    await until((home / "postgres/18/runtime").exists, "the keeper has begun")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    wait_until(lambda: not processes_naming(str(home)), "every process of it ends")


# What it refuses


def tree(folder: Path) -> dict[str, float]:
    return {
        str(path): path.stat().st_mtime for path in folder.rglob("*") if path.is_file() and ".lock" not in path.name
    }


def age_the_cluster(home: Path) -> Path:
    (home / "postgres/18/data/PG_VERSION").write_text("17\n")
    return home / "postgres/18/data"


def move_the_cluster(home: Path) -> Path:
    age_the_cluster(home)
    (home / "postgres/18").rename(home / "postgres/17")
    return home / "postgres/17/data"


@pytest.mark.parametrize("make_old", [age_the_cluster, move_the_cluster])
async def test_data_of_another_major_version_is_refused_with_the_way_to_move(
    home: Path, make_old: Callable[[Path], Path]
) -> None:
    async with EmbeddedPostgres(home, NO_SYNC):
        pass
    data = make_old(home)
    before = tree(home)
    with pytest.raises(EmbeddedPostgresFailed) as refusal:
        await EmbeddedPostgres(home, NO_SYNC).start()
    for part in (str(data), "PostgreSQL 17", "PostgreSQL 18", "pg_dumpall"):
        assert part in refusal.value.message
    assert tree(home) == before


async def test_a_home_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddedPostgresFailed, match="RACKWRIGHT_HOME"):
        await EmbeddedPostgres(tmp_path / "file").start()


async def test_what_postgresql_says_about_a_bad_setting_reaches_the_caller(home: Path) -> None:
    with pytest.raises(EmbeddedPostgresFailed, match="work_mem"):
        await EmbeddedPostgres(home, NO_SYNC | {"work_mem": "much"}).start()
    wait_until(lambda: not processes_naming(str(home)), "every process of it ends")
