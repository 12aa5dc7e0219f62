"""The embedded PostgreSQL after kill -9 of each of its processes, at each moment."""

import asyncio
import contextlib
import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from tests.support.processes import is_alive, keeper_of, postmaster_of, processes_naming
from tests.support.servers.postgres import NO_SYNC, ask, execute, sockets_of
from tests.support.servers.postgres_holder import Holder
from tests.support.waiting import PATIENCE, until, wait_until

from rackwright.store.database_errors import EmbeddedPostgresFailed
from rackwright.store.embedded.server import EmbeddedPostgres, program_directory


async def assert_starts_with(home: Path, rows: int) -> None:
    async with EmbeddedPostgres(home, NO_SYNC) as server:
        assert ask(server.url, "SELECT count(*) FROM kept") == str(rows)
        execute(server.url, "INSERT INTO kept VALUES (0)")


def fill(url: str) -> None:
    execute(url, "CREATE TABLE kept (value int)")
    execute(url, "INSERT INTO kept SELECT generate_series(1, 1000)")


async def test_a_killed_user_takes_its_server_with_it(home: Path) -> None:
    holder = Holder(home).wait_joined()
    fill(holder.url)
    postmaster, sockets = postmaster_of(home), sockets_of(holder.url)
    holder.kill()
    wait_until(lambda: not is_alive(postmaster), "the server stops")
    wait_until(lambda: not sockets.exists(), "the socket directory is gone")
    await assert_starts_with(home, 1000)


async def test_a_killed_user_leaves_the_server_to_the_others(home: Path) -> None:
    async with EmbeddedPostgres(home, NO_SYNC) as server:
        postmaster = postmaster_of(home)
        Holder(home).wait_joined().kill()
        # The keeper hears of a death and of a newcomer through the same queue: this one comes after it.
        async with EmbeddedPostgres(home, NO_SYNC):
            pass
        assert ask(server.url, "SELECT 1") == "1"
        assert postmaster_of(home) == postmaster


async def test_a_killed_keeper_takes_the_server_with_it_and_its_users_hear_of_it(home: Path) -> None:
    server = EmbeddedPostgres(home, NO_SYNC)
    fill(await server.start())
    postmaster = postmaster_of(home)
    os.kill(keeper_of(home), signal.SIGKILL)
    await asyncio.wait_for(server.wait_until_lost(), PATIENCE)
    wait_until(lambda: not is_alive(postmaster), "the server stops")
    await server.stop()
    await assert_starts_with(home, 1000)


async def test_a_start_right_after_the_keeper_was_killed_waits_for_the_old_server(home: Path) -> None:
    server = EmbeddedPostgres(home, NO_SYNC)
    fill(await server.start())
    for rows in range(1000, 1003):
        os.kill(keeper_of(home), signal.SIGKILL)
        other = EmbeddedPostgres(home, NO_SYNC)
        assert ask(await other.start(), "SELECT count(*) FROM kept") == str(rows)
        execute(other.url, "INSERT INTO kept VALUES (0)")
        await server.stop()
        server = other
    await server.stop()


async def test_a_start_waits_for_a_server_that_is_slow_to_follow_its_killed_keeper(home: Path) -> None:
    server, other = EmbeddedPostgres(home, NO_SYNC), EmbeddedPostgres(home, NO_SYNC)
    fill(await server.start())
    keeper, postmaster = psutil.Process(keeper_of(home)), psutil.Process(postmaster_of(home))
    postmaster.suspend()
    try:
        keeper.kill()
        await until(lambda: not is_alive(keeper.pid), "the killed keeper is gone")
        starting = asyncio.create_task(other.start())
        waiting = await until(lambda: keeper_at_the_lock(home), "a new keeper has come to the lock of the data")
        assert waiting is not None
        looks = waiting.num_ctx_switches().voluntary + 5  # it sleeps after each look at the lock
        await until(lambda: waiting.num_ctx_switches().voluntary > looks, "it looks at the lock again and again")
        assert not starting.done()
    finally:
        postmaster.resume()
    assert ask(await starting, "SELECT count(*) FROM kept") == "1000"
    await other.stop()
    await server.stop()


async def test_a_socket_directory_elsewhere_is_cleared_by_the_next_start(tmp_path: Path) -> None:
    home = tmp_path / ("deep" * 30)
    server = EmbeddedPostgres(home, NO_SYNC)
    old = sockets_of(await server.start())
    os.kill(keeper_of(home), signal.SIGKILL)
    async with EmbeddedPostgres(home, NO_SYNC) as other:
        assert sockets_of(other.url) != old
        assert not old.exists()
    await server.stop()


async def test_everything_killed_at_once_is_recovered_with_all_that_was_committed(home: Path) -> None:
    holder = Holder(home).wait_joined()
    fill(holder.url)
    keeper, postmaster = psutil.Process(keeper_of(home)), psutil.Process(postmaster_of(home))
    for process in (keeper, postmaster):
        process.suspend()  # or the first death would still be answered by the others
    for process in (*postmaster.children(), postmaster, keeper):
        with contextlib.suppress(psutil.NoSuchProcess):  # a session that was just ending
            process.kill()
    holder.kill()
    assert (home / "postgres/18/data/postmaster.pid").exists()
    await assert_starts_with(home, 1000)


async def test_a_stale_pid_file_that_names_a_living_process_is_no_obstacle(home: Path) -> None:
    async with EmbeddedPostgres(home, NO_SYNC) as server:
        fill(server.url)
        pid_file = (home / "postgres/18/data/postmaster.pid").read_text()
    stale = "\n".join([str(os.getpid()), *pid_file.splitlines()[1:]])
    (home / "postgres/18/data/postmaster.pid").write_text(stale + "\n")
    await assert_starts_with(home, 1000)


async def test_a_server_that_somebody_else_started_on_the_data_is_refused(home: Path, tmp_path: Path) -> None:
    async with EmbeddedPostgres(home, NO_SYNC) as server:
        fill(server.url)
    become = ["unshare", "--user", "--map-user=65534"] if os.geteuid() == 0 else []
    command = [
        *become,
        str(program_directory() / "bin/postgres"),
        "-D",
        str(home / "postgres/18/data"),
        "-k",
        str(tmp_path),
    ]
    stranger = await asyncio.create_subprocess_exec(*command, "-c", "listen_addresses=", stderr=subprocess.DEVNULL)
    try:
        wait_until((home / "postgres/18/data/postmaster.pid").exists, "the stranger's server runs")
        with pytest.raises(EmbeddedPostgresFailed, match=f"Process {stranger.pid}.*kill -INT {stranger.pid}"):
            await EmbeddedPostgres(home, NO_SYNC).start()
    finally:
        stranger.send_signal(signal.SIGINT)
        await stranger.wait()
    await assert_starts_with(home, 1000)


def begin_initdb(home: Path) -> Holder:
    """Return a holder whose keeper is in the middle of making the cluster."""
    holder = Holder(home)
    wait_until((home / "postgres/18/data.new/base/1").is_dir, "initdb is at work")
    return holder


def keepers(home: Path) -> list[int]:
    keeper_pids = []
    for pid in processes_naming(str(home)):
        with contextlib.suppress(psutil.NoSuchProcess):  # others come and go meanwhile
            if "rackwright.store.embedded.keeper" in psutil.Process(pid).cmdline():
                keeper_pids.append(pid)
    return keeper_pids


def keeper_at_the_lock(home: Path) -> psutil.Process | None:
    """Return the keeper that has opened the lock of the data; the old server holds that lock, and is no keeper."""
    for pid in keepers(home):
        with contextlib.suppress(psutil.NoSuchProcess):
            keeper = psutil.Process(pid)
            if any(file.path.endswith("/data.lock") for file in keeper.open_files()):
                return keeper
    return None


async def test_a_keeper_killed_while_it_makes_the_cluster_is_recovered(home: Path) -> None:
    holder = begin_initdb(home)
    for keeper in keepers(home):
        os.kill(keeper, signal.SIGKILL)
    assert not (home / "postgres/18/data").exists()
    async with EmbeddedPostgres(home, NO_SYNC) as server:
        fill(server.url)
    holder.kill()
    await assert_starts_with(home, 1000)


async def test_a_user_killed_while_its_cluster_is_made_leaves_a_whole_one(home: Path) -> None:
    begin_initdb(home).kill()
    async with EmbeddedPostgres(home, NO_SYNC) as server:
        fill(server.url)
    await assert_starts_with(home, 1000)
    wait_until(lambda: not processes_naming(str(home)), "every process of it ends")
