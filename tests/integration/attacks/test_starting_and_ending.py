"""How a server starts and ends: with the keys of its database or not at all, and never with a run left hanging.

- SIGTERM and SIGINT end it in order, with status 0: what runs is handed back at once, not when its lease is over. A
  signal while it starts ends it too.
- A server with a home of its own does not make new keys for a database whose secrets other keys sealed.
- Killed between making the first user and writing its password down, it makes both anew.
- A password in the command line is refused: every user of the host could read it.
"""

import signal
import subprocess
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from psycopg.types.json import Jsonb
from tests.support.rack import Rack
from tests.support.servers.server_processes import DIES_WITH_US, RACKWRIGHT, ServerProcess, servers
from tests.support.waiting import PATIENCE, until, wait_until

from rackwright.api.context import Server
from rackwright.domain.states import NodeRoleState
from rackwright.server import first_admin
from rackwright.server.composition import running_server
from rackwright.server.first_admin import PASSWORD_FILE, TOKEN_FILE
from rackwright.server.settings import Options, SettingsInvalid, load_settings
from rackwright.store.db.database import open_database
from rackwright.store.db.session import Session
from rackwright.store.db.vault import KEY_FILE
from rackwright.store.store import Store
from rackwright.store.vault_check import VaultKeyMissing

LONG = 100_000.0
"""Seconds: a lease that no test waits for."""
SLOW = "{name: slow, roles: [{name: slow, jig: simulate, template: {simulate: {seconds: 100000}}}]}"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
async def test_a_signal_ends_it_with_status_0_and_hands_back_what_runs(
    rack: Rack, started_url: str, tmp_path: Path, number: signal.Signals
) -> None:
    await rack.import_text(SLOW)
    await rack.deployment("web")
    await rack.node("n1", deployment="web")
    await rack.deploy("web", ("n1", "slow"))
    with servers(tmp_path, started_url, 1, lease=LONG, heartbeat=LONG) as [server]:

        async def is_running() -> bool:
            return await rack.rows("SELECT 1 FROM runs WHERE state = 'running'") != []

        await until(is_running, "the slow run has begun")
        assert stop(server, number) == 0
        assert "Traceback" not in server.said()
    assert await rack.rows("SELECT 1 FROM runs WHERE state = 'running'") == [], "no other server waits for its lease"
    assert await rack.state("n1", "slow") is not NodeRoleState.TRANSITION


def stop(server: ServerProcess, number: signal.Signals) -> int:
    """End a server by a signal; gives its status."""
    assert server._process is not None
    server._process.send_signal(number)
    return server._process.wait(PATIENCE)


def test_a_signal_while_it_starts_ends_it_and_its_embedded_database(tmp_path: Path) -> None:
    home = tmp_path / "home"
    process = subprocess.Popen(
        [*DIES_WITH_US, str(RACKWRIGHT), "server", "--home", str(home), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: (home / "postgres").exists(), "it has begun to make its database")
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    wait_until(lambda: not list(home.rglob("postmaster.pid")), "the database has ended")


# --- keys


def started(home: Path, url: str) -> AbstractAsyncContextManager[Server]:
    return running_server(Options(home, url, manual=True))


async def test_a_second_home_makes_no_new_keys_for_a_database_that_has_some(tmp_path: Path, started_url: str) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with started(first, started_url):
        pass
    for _ in range(2):
        with pytest.raises(VaultKeyMissing, match=f"Copy {KEY_FILE} .* to {second / KEY_FILE}"):
            await started(second, started_url).__aenter__()
        assert not (second / KEY_FILE).exists()
    second.mkdir(exist_ok=True)
    (second / KEY_FILE).write_bytes((first / KEY_FILE).read_bytes())
    async with started(second, started_url):
        pass


async def test_foreign_keys_are_refused_also_where_nobody_noted_whose_the_secrets_are(
    tmp_path: Path, started_url: str
) -> None:
    """A database from before the note was taken: its secrets themselves tell."""
    first, second = tmp_path / "first", tmp_path / "second"
    async with started(first, started_url) as server:
        sealed = server.store.vault.seal("open sesame")

        async def keep(session: Session) -> None:
            hint = Jsonb({"word": sealed})
            await session.run("UPDATE nodes SET hint = :hint WHERE admin", hint=hint)
            await session.run("DELETE FROM settings WHERE name = 'vault'")

        await server.store.change(keep)
    with pytest.raises(VaultKeyMissing):
        await started(second, started_url).__aenter__()
    async with started(first, started_url):
        pass


def test_the_server_says_so_in_one_sentence_and_ends(tmp_path: Path, started_url: str) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for home in (first, second):
        home.mkdir()
    with servers(first, started_url, 1, lease=LONG, heartbeat=LONG):
        pass
    server = ServerProcess(second, started_url, lease=LONG, heartbeat=LONG)
    server.start()
    assert server._process is not None
    assert server._process.wait(PATIENCE) == 1
    assert f"Copy {KEY_FILE} from the home of the server" in server.said()
    assert "Traceback" not in server.said()


# --- the first user


class Killed(BaseException):
    """As a kill looks from inside: nothing after it is done."""


async def test_killed_before_the_password_was_written_it_makes_user_and_password_anew(
    tmp_path: Path, migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = first_admin.write_secret

    def killed(path: Path, secret: str) -> None:
        if path.name == PASSWORD_FILE:
            raise Killed
        write(path, secret)

    monkeypatch.setattr(first_admin, "write_secret", killed)
    with pytest.raises(Killed):
        await started(tmp_path, migrated_url).__aenter__()
    monkeypatch.undo()
    async with await open_database(migrated_url, tmp_path) as database, Store(database).read() as session:
        assert await session.value("SELECT count(*) FROM users") == 0
    async with started(tmp_path, migrated_url) as server:
        password = (tmp_path / PASSWORD_FILE).read_text().strip()
        async with server.store.read() as session:
            stored = await session.value("SELECT password_hash FROM users WHERE name = 'admin'")
        assert await server.passwords.verify(stored, password)
        assert (tmp_path / TOKEN_FILE).exists()


# --- the command line


def test_a_password_in_the_command_line_is_refused(tmp_path: Path) -> None:
    url = "postgresql://rack:sesame@127.0.0.1/rack"
    done = subprocess.run(
        [str(RACKWRIGHT), "server", "--home", str(tmp_path), "--database-url", url],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 1
    assert "RACKWRIGHT_DATABASE_URL in the environment" in done.stderr
    assert "sesame" not in done.stderr
    with pytest.raises(SettingsInvalid, match="settings file"):  # as for `barclamp import`
        load_settings({"database_url": url})
