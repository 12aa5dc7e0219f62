"""Images over the API: what there is and who uses it for people, whole files and chunks for machines."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg.types.json import Jsonb
from tests.support.machines.root_trees import put_trial_image
from tests.support.servers.api_server import NODE, Api, Site, ok
from tests.support.servers.install_site import Site as InstallSite
from tests.support.servers.install_site import running_site

from rackwright.domain.machines.install import Stage
from rackwright.provision.images.shelf import REPLACED_KEPT, Shelf
from rackwright.server.shelf_upkeep import ShelfUpkeep
from rackwright.store.store import Store

PIECES = (b"01234", b"567", b"89")
WHOLE = b"".join(PIECES)


async def test_images_are_shown_with_their_sizes_and_who_uses_them(site: Site, api: Api) -> None:
    put_trial_image(site.server.shelf, "debian-12", b"common", b"own")
    put_trial_image(site.server.shelf, "debian-13", b"common", b"other")
    ok(await api.post("/nodes", json={"name": NODE, "alive": True}), 201)
    ok(await api.post("/deployments", json={"name": "web"}), 201)
    body = {"node": NODE, "deployment": "web", "role": "provisioner-os-install"}
    ok(await api.post("/node_roles", json=body), 201)
    first, second = ok(await api.get("/images"))
    assert (first["name"], first["size"], first["own"], first["shared"]) == ("debian-12", 9, 3, 6)
    assert (first["chunks"], first["signed"], first["problem"]) == (2, False, None)
    assert first["nodes"] == [{"node": NODE, "use": "planned"}]
    assert second["nodes"] == []


async def test_an_installed_node_uses_its_image(started_url: str, tmp_path: Any) -> None:
    async with running_site(tmp_path / "home", started_url) as site:
        put_trial_image(site.server.shelf, "debian-12", b"x")
        [machine] = await site.deployed(1)
        for stage, use in ((Stage.WAITING, "installing"), (Stage.DONE, "installed")):
            await site.reach_stage(machine, stage)
            assert await _uses(site) == [{"node": machine.name, "use": use}]


async def _uses(site: InstallSite) -> Any:
    from rackwright.api.routes.images import describe_images
    from rackwright.store.db.visibility import EVERYTHING
    from rackwright.store.graph.image_users import select_image_users

    async with site.server.store.read() as session:
        users = await select_image_users(session, EVERYTHING)
    [image] = describe_images(site.server.shelf, users)
    return [user.model_dump() for user in image.nodes]


@pytest.mark.parametrize(
    ("asked", "status", "content"),
    [
        (None, 200, WHOLE),
        ("bytes=0-", 206, WHOLE),
        ("bytes=3-6", 206, WHOLE[3:7]),
        ("bytes=9-100", 206, WHOLE[9:]),
        ("bytes=-3", 206, WHOLE[-3:]),
        ("bytes=-300", 206, WHOLE),
        ("bytes=10-", 416, b""),
        ("bytes=20-30", 416, b""),
        ("bytes=5-3", 200, WHOLE),
        ("bytes=20-3", 200, WHOLE),
        ("bytes=-0", 416, b""),
        ("bytes=1-2,4-5", 200, WHOLE),
        ("bytes=x", 200, WHOLE),
        ("bytes=-", 200, WHOLE),
    ],
)
async def test_a_file_in_chunks_is_sent_whole_or_in_part(
    site: Site, asked: str | None, status: int, content: bytes
) -> None:
    root = put_trial_image(site.server.shelf, "debian-12", *PIECES)
    async with site.client("") as client:
        url = "http://server/files/debian-12/root.tar.zst"
        answer = await client.get(url, headers={} if asked is None else {"Range": asked})
        assert (answer.status_code, answer.content) == (status, content)
        assert answer.headers["x-content-sha256"] == root.sha256
        if status == 206:
            first = WHOLE.index(content)
            assert answer.headers["content-range"] == f"bytes {first}-{first + len(content) - 1}/{len(WHOLE)}"
        other = await client.get(url, headers={"Range": "bytes=1-2", "If-Range": '"sha256-other"'})
        assert (other.status_code, other.content) == (200, WHOLE), "it is another file by now: from the beginning"


@pytest.mark.parametrize("asked", [{}, {"Range": "bytes=3-6"}])
async def test_the_head_of_a_file_in_chunks_is_sent_without_reading_the_file(
    site: Site, monkeypatch: pytest.MonkeyPatch, asked: dict[str, str]
) -> None:
    """A stranger who asks for many heads of an image must not have the server read it as often."""
    root = put_trial_image(site.server.shelf, "debian-12", *PIECES)
    was_read: list[bytes] = []

    def read(*_: object) -> Iterator[bytes]:
        was_read.append(WHOLE)
        yield WHOLE

    monkeypatch.setattr(site.server.shelf, "read", read)
    async with site.client("") as client:
        answer = await client.head("http://server/files/debian-12/root.tar.zst", headers=asked)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-length"] == str(len(WHOLE))
    assert answer.headers["x-content-sha256"] == root.sha256
    assert answer.headers["etag"] == f'"sha256-{root.sha256}"'
    assert answer.headers["accept-ranges"] == "bytes"
    assert was_read == []


async def test_a_chunk_is_sent_by_its_digest(site: Site) -> None:
    root = put_trial_image(site.server.shelf, "debian-12", *PIECES)
    async with site.client("") as client:
        answer = await client.get(f"http://server/chunks/{root.chunks[1].sha256}")
        assert (answer.status_code, answer.content) == (200, PIECES[1])
        for name in ("0" * 64, "..admin.token", "x", root.chunks[1].sha256.upper()):
            assert (await client.get(f"http://server/chunks/{name}")).status_code == 404


@pytest.mark.parametrize(
    ("asked", "status", "content"),
    [("bytes=1-", 206, b"67"), ("bytes=2-1", 200, b"567"), ("bytes=3-", 416, b""), ("lines=1-2", 200, b"567")],
)
async def test_a_range_that_is_none_is_ignored_of_whatever_is_sent(
    site: Site, asked: str, status: int, content: bytes
) -> None:
    root = put_trial_image(site.server.shelf, "debian-12", *PIECES)
    with site.server.shelf.making("sledgehammer", {}) as folder:
        (folder / "kernel").write_bytes(PIECES[1])
    async with site.client("") as client:
        for url in (f"chunks/{root.chunks[1].sha256}", "files/sledgehammer/kernel"):
            answer = await client.get(f"http://server/{url}", headers={"Range": asked})
            assert (answer.status_code, answer.content) == (status, content)


async def test_chunks_are_kept_while_an_install_names_them_however_long_it_takes(
    started_url: str, tmp_path: Path
) -> None:
    async with running_site(tmp_path / "home", started_url) as site:
        shelf, store = site.server.shelf, site.server.store
        [machine] = await site.deployed(1)
        await site.reach_stage(machine, Stage.WAITING)
        old = put_trial_image(shelf, "debian-12", b"old").chunks[0].sha256
        await _freeze_chunk(store, old)
        upkeep = ShelfUpkeep(store, shelf)
        await upkeep.look_after()
        put_trial_image(shelf, "debian-12", b"new")
        _let_hours_pass(shelf)
        shelf.clean()
        assert shelf.chunks.path(old), "it is named by an install that waits"
        await site.reach_stage(machine, Stage.DONE)
        await upkeep.look_after()
        assert not shelf.chunks.path(old)
        [new] = shelf.file("debian-12", "root.tar.zst").chunks
        assert shelf.chunks.path(new.sha256)


async def _freeze_chunk(store: Store, sha256: str) -> None:
    """Have the installs that are open name a chunk, as installs of machines that are not simulated do."""
    frozen = Jsonb({"image": {"chunks": [{"size": 3, "sha256": sha256}]}})
    await store.change(
        lambda session: session.run(
            "UPDATE install_attempts SET frozen = frozen || :frozen WHERE ended_at IS NULL", frozen=frozen
        ),
        actor="test",
    )


def _let_hours_pass(shelf: Shelf) -> None:
    long_ago = time.time() - REPLACED_KEPT - 1
    for path in (shelf.folder / ".replaced").iterdir():
        os.utime(path, (long_ago, long_ago))
