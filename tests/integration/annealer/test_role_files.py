"""What a server runs comes from the database, whichever server it is, and whatever became of the barclamp's folder."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from tests.support.machines.reached_nodes import looks_up
from tests.support.rack import Rack
from tests.support.servers.hooked_barclamps import Hooked
from tests.support.waiting import PATIENCE, until

from rackwright.annealer.annealer import Annealer, Pace
from rackwright.annealer.role_files import FilesMissing, RoleFiles
from rackwright.annealer.role_transitions import RoleTransitions
from rackwright.annealer.role_workers import RoleWorkers
from rackwright.barclamps.content import folder_digest
from rackwright.barclamps.loader import load_folder
from rackwright.domain.runs import Answer
from rackwright.jigs.registry import jig_kinds, kinds_that_run_files, make_jigs
from rackwright.server.jig_ports import ServerPorts
from rackwright.store.barclamp_import import import_barclamps
from rackwright.store.db.retention import forget
from rackwright.store.runs.claims import Claimant

WEB = """
name: web
roles:
  - {name: web-server, jig: script}
  - {name: web-farm, jig: role-provided}
  - {name: web-pages, jig: state}
"""
ROLES = """
from pathlib import Path
from rackwright.domain.hooks import RoleHooks
from rackwright.domain.runs import Outcome

class Farm(RoleHooks):
    role = "web-farm"
    def do_transition(self, noderole):
        return Outcome.success({"said": (Path(__file__).parent / "templates" / "hello").read_text()})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "web"
    for place in ("script/roles/web-server", "states/web-pages", "templates"):
        (folder / place).mkdir(parents=True)
    (folder / "barclamp.yml").write_text(WEB)
    (folder / "script/roles/web-server/run.sh").write_text("write_attribute web/host $RACKWRIGHT_NODE\n")
    (folder / "states/web-pages/init.sls").write_text("ok:\n  test.succeed_without_changes: []\n")
    (folder / "roles.py").write_text(ROLES)
    (folder / "templates/hello").write_text("hello")
    return folder


async def load(rack: Rack, folder: Path) -> str:
    """Import the folder; the digest of its files."""
    loaded = await asyncio.to_thread(load_folder, folder)
    await rack.do(lambda session: import_barclamps(session, [loaded]))
    return loaded.digest


@pytest.fixture
def files(rack: Rack, tmp_path: Path) -> RoleFiles:
    return RoleFiles(rack.store, tmp_path / "home")


HOSTS = ("admin", "a2")


@contextlib.asynccontextmanager
async def server(rack: Rack, node: str, home: Path) -> AsyncIterator[None]:
    """What of a server runs things, with a home of its own, on the host that is this admin node."""
    node_id = await rack.node_id(node)
    workers = RoleWorkers(start_time=PATIENCE)
    ports = ServerPorts(rack.store, home, node_id)
    jigs = make_jigs(ports.jig_ports(RoleTransitions(rack.store, workers, ports.files), None, looks_up))
    annealer = Annealer(rack.store, jigs, Claimant(node, node_id, PATIENCE, kinds_that_run_files()), Pace(tick=0.5))
    task = asyncio.create_task(annealer.run())
    try:
        yield
    finally:
        annealer.stop()
        await task
        await ports.connections.close()
        await workers.close()


async def test_both_servers_run_what_was_imported_when_neither_has_the_folder(
    rack: Rack, folder: Path, tmp_path: Path
) -> None:
    digest = await load(rack, folder)
    shutil.rmtree(folder)
    await rack.node("a2", admin=True)
    await rack.anneal()
    await rack.deployment("web")
    places = [(host, role) for host in HOSTS for role in ("web-server", "web-farm", "web-pages")]
    await rack.deploy("web", *places)

    async def settled() -> bool:
        return all([(await rack.at(*place)).state.label in ("active", "error") for place in places])

    async with server(rack, HOSTS[0], tmp_path / "one"), server(rack, HOSTS[1], tmp_path / "other"):
        await until(settled, "all of it ran")
    assert {place: (await rack.at(*place)).error for place in places} == dict.fromkeys(places, "")
    ran = await rack.rows(
        "SELECT n.name, r.name, run.worker, run.content, nr.wall FROM runs run JOIN nodes n ON n.id = run.node_id"
        " JOIN node_roles nr ON nr.id = run.node_role_id JOIN roles r ON r.id = nr.role_id"
        " WHERE r.name LIKE 'web-%' ORDER BY n.name DESC, r.name"
    )
    assert ran == [
        (f"{host}.rack.example", role, host, digest, wall)
        for host in HOSTS
        for role, wall in (
            ("web-farm", {"said": "hello"}),
            ("web-pages", {"states": {"ok": {}}}),
            ("web-server", {"web": {"host": f"{host}.rack.example"}}),
        )
    ]


async def test_kept_files_are_those_of_the_digest_or_taken_anew(rack: Rack, files: RoleFiles, folder: Path) -> None:
    digest = await load(rack, folder)
    shutil.rmtree(folder)
    kept = await files.folder(digest, "web", "web-server")
    assert folder_digest(kept) == digest
    assert kept.stat().st_mode & 0o077 == 0
    (kept / "script/roles/web-server/run.sh").write_text("rm -rf /\n")
    assert folder_digest(await files.folder(digest, "web", "web-server")) == digest
    (kept / "templates/hello").unlink()
    (kept / "templates/hello").symlink_to("/etc/passwd")
    assert folder_digest(await files.folder(digest, "web", "web-server")) == digest
    assert [entry.name for entry in kept.parent.iterdir()] == [digest]


async def test_what_cannot_be_had_is_an_error_that_says_what_to_do(
    rack: Rack, files: RoleFiles, folder: Path, tmp_path: Path
) -> None:
    digest = await load(rack, folder)
    with pytest.raises(FilesMissing, match="Import it again: rackwright barclamp import"):
        await files.folder("", "web", "web-server")
    await rack.do(lambda session: session.run("UPDATE contents SET archive = substr(archive, 1, 1536)"))
    with pytest.raises(FilesMissing, match="damaged"):
        await files.folder(digest, "web", "web-server")
    await rack.do(lambda session: session.run("DELETE FROM contents"))
    with pytest.raises(FilesMissing, match="no longer has the files"):
        await files.folder(digest, "web", "web-server")


async def test_runs_of_a_barclamp_that_an_older_version_imported_end_in_error(
    rack: Rack, hooked: Hooked, folder: Path, tmp_path: Path
) -> None:
    await load(rack, folder)
    await rack.do(lambda session: session.run("UPDATE barclamps SET digest = '' WHERE name = 'web'"))
    await rack.do(lambda session: session.run("UPDATE graph SET catalogue_version = catalogue_version + 1"))
    await rack.node("n1")
    await rack.anneal()
    await rack.deployment("web")
    await rack.deploy("web", ("n1", "web-server"), ("n1", "web-farm"), ("n1", "web-pages"))
    ports = ServerPorts(rack.store, tmp_path / "means", own_node=await rack.node_id("n1"))
    jigs = make_jigs(ports.jig_ports(RoleTransitions(rack.store, hooked.workers, ports.files), None, looks_up))
    seen = []
    while runs := await rack.claim():
        for run in runs:
            outcome = await jigs[run.kind].run(run, print)
            if run.kind == "noop":
                await rack.finish(run)
                continue
            assert outcome.answer is Answer.FAILED
            assert "'web' are not in the database" in outcome.error
            assert "Import it again" in outcome.error
            await rack.finish(run, ok=False)
            seen.append(run.kind)
    assert sorted(seen) == ["role-provided", "script", "state"]


async def test_content_goes_when_no_barclamp_and_no_run_under_way_has_it(rack: Rack, folder: Path) -> None:
    first = await load(rack, folder)
    await rack.node("n1")
    await rack.anneal()
    await rack.deployment("web")
    await rack.deploy("web", ("n1", "web-server"))
    [run] = await rack.claim()
    assert run.content == first
    (folder / "templates/hello").write_text("good bye")
    second = await load(rack, folder)

    async def digests() -> set[object]:
        await rack.do(lambda session: forget(session, "contents", keep=-1))
        return {row[0] for row in await rack.rows("SELECT digest FROM contents")}

    assert {first, second} <= await digests()
    await rack.finish(run)
    kept = await digests()
    assert first not in kept
    assert second in kept
    assert await rack.rows("SELECT content FROM runs WHERE id = :id", id=run.id) == [(first,)]


async def test_the_kinds_that_a_barclamp_may_name_are_those_that_there_are(rack: Rack, tmp_path: Path) -> None:
    ports = ServerPorts(rack.store, tmp_path / "means", own_node=None)
    async with httpx.AsyncClient() as lab:
        jigs = make_jigs(ports.jig_ports(RoleTransitions(rack.store, RoleWorkers(), ports.files), lab, looks_up))
    assert sorted(jigs) == sorted(jig_kinds())


def test_what_a_killed_server_left_and_what_nobody_needs_is_tidied_away(tmp_path: Path, rack: Rack) -> None:
    kept = tmp_path / "home" / "barclamps"
    for name in ("aa", "bb", ".aa.1.ff", ".aa.1.broken"):
        (kept / name / "deep").mkdir(parents=True)
    RoleFiles(rack.store, tmp_path / "home").tidy({"aa"})
    assert [entry.name for entry in kept.iterdir()] == ["aa"]
