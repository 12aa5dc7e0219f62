"""Debian's own cloud-init on an installed node: it does what user-data says, and a secret comes to it over SSH only.

`python -m tests.e2e.cloud_init_scenarios NAME FOLDER IMAGES`, as `scenarios.py`; the image has cloud-init.
"""

import asyncio
import contextlib
import hashlib
import http.server
import logging
import re
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from unittest import mock

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tests.e2e.scenarios import Site, site_of

from rackwright.api.app import create_machine_app
from rackwright.api.context import Server
from rackwright.barclamps.loader import load_folder
from rackwright.lab.hardware import Hardware
from rackwright.lab.network import SERVER
from rackwright.store.barclamp_import import import_barclamps

APT_PORT = 8099
SECRET = "correct-horse: battery 'staple' #7"
"""A value that would be something else if it were put into YAML as it is."""
PLAIN = "written-by-user-data"
USER_DATA = f"""\
#cloud-config
bootcmd:
- rm -f /etc/apt/sources.list.d/*
apt:
  preserve_sources_list: false
  sources_list: "deb [trusted=yes] http://{SERVER}:{APT_PORT}/ ./"
package_update: yes
packages: [rackwright-trial]
users:
- default
- name: trial
  gecos: Of user-data
  shell: /bin/bash
write_files:
- path: /etc/trial
  content: {PLAIN}
- path: /etc/trial-secret
  permissions: "0600"
  content: ${{secret:database}}
runcmd:
- [sh, -c, "echo runcmd >>/etc/trial-order"]
"""
BARCLAMP = """
name: cloud
display: Trial
description: What cloud-init did
version: "1.0"
parent: core
roles:
  - name: cloud-look
    jig: script
    description: Says what cloud-init did
    requires: [crowbar-installed-node]
"""
LOOK = r"""#!/bin/sh -e
write_attribute seen/status "$(cloud-init status)"
write_attribute seen/datasource "$(cat /run/cloud-init/result.json)"
write_attribute seen/user "$(getent passwd trial)"
write_attribute seen/package "$(dpkg-query -W -f '${Status} ${Version}' rackwright-trial)"
write_attribute seen/file "$(cat /etc/trial)"
write_attribute seen/order "$(cat /etc/trial-order)"
write_attribute seen/secret "$(tr -d '\n' </etc/trial-secret | sha256sum | cut -c 1-64)"
write_attribute seen/mode "$(stat -c %a /etc/trial-secret /var/lib/cloud/seed/nocloud/user-data | tr '\n' ' ')"
write_attribute seen/hostname "$(cat /etc/hostname)"
write_attribute seen/host_keys "$(ls /etc/ssh | grep -c 'ssh_host_.*_key$')"
"""


class Recorded:
    """Everything that machines are answered over HTTP, but files of images."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}

    def around(self, app: ASGIApp) -> ASGIApp:
        async def recording(scope: Scope, receive: Receive, send: Send) -> None:
            async def record(message: Message) -> None:
                if message["type"] == "http.response.body" and not scope["path"].startswith("/files/"):
                    path = scope["path"]
                    self.answers[path] = self.answers.get(path, b"") + message.get("body", b"")
                await send(message)

            await app(scope, receive, record)

        return recording

    def text(self) -> bytes:
        """Return all answers, with what is in base64 in them once more in the clear."""
        raw = b"\n".join(self.answers.values())
        words = [word[: len(word) // 4 * 4] for word in re.findall(rb"[A-Za-z0-9+/]{16,}={0,2}", raw)]
        return b"\n".join([raw, *map(b64decode, words)])


@contextlib.contextmanager
def _recording() -> Iterator[Recorded]:
    recorded = Recorded()

    def create_recorded(server: Server) -> FastAPI:
        app = create_machine_app(server)
        app.add_middleware(_Middleware, recorded=recorded)
        return app

    with mock.patch("rackwright.server.provisioning.create_machine_app", create_recorded):
        yield recorded


class _Middleware:
    def __init__(self, app: ASGIApp, recorded: Recorded) -> None:
        self._recording = recorded.around(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._recording(scope, receive, send)


def _make_repository(folder: Path) -> None:
    """Make an apt repository with one package, as Debian's tools would."""
    control = folder / "tree" / "DEBIAN" / "control"
    control.parent.mkdir(parents=True)
    described = (
        "Package: rackwright-trial\nVersion: 4.2\nArchitecture: all\nMaintainer: trial <trial@localhost>\n"
        "Description: nothing\n"
    )
    control.write_text(described)
    (folder / "tree" / "etc").mkdir()
    (folder / "tree" / "etc" / "rackwright-trial").write_text("here\n")
    package = folder / "rackwright-trial.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-b", folder / "tree", package], check=True, stdout=subprocess.DEVNULL
    )
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    entry = f"{described}Filename: ./{package.name}\nSize: {package.stat().st_size}\nSHA256: {digest}\n"
    (folder / "Packages").write_text(entry)


@contextlib.contextmanager
def _serving_repository(folder: Path) -> Iterator[None]:
    _make_repository(folder)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: what apt asked for is its own business."""

    server = http.server.ThreadingHTTPServer((SERVER, APT_PORT), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def cloud_init(folder: Path, images: Path) -> None:
    """A node is installed with user-data that has a user, a package, a file and a secret."""
    with _recording() as recorded:
        async with site_of(folder, images, [Hardware(1, memory=1024)]) as site:
            with _serving_repository(folder / "apt"):
                seen = await _install(site, folder)
            assert seen["status"] == "status: done", seen
            assert '"DataSourceNoCloud' in seen["datasource"], seen
            assert '"errors": []' in seen["datasource"], seen
            assert seen["user"].startswith("trial:x:"), seen
            assert "Of user-data" in seen["user"], seen
            assert seen["package"] == "install ok installed 4.2", seen
            assert (seen["file"], seen["order"]) == (PLAIN, "runcmd"), seen
            assert seen["secret"] == hashlib.sha256(SECRET.encode()).hexdigest(), seen
            assert seen["mode"].split() == ["600", "600"], seen
            assert seen["host_keys"] == "1", "cloud-init made no host keys of its own"
            await _check_secrecy(site, folder, recorded)


async def _install(site: Site, folder: Path) -> dict[str, str]:
    scripts = folder / "cloud" / "script" / "roles" / "cloud-look"
    scripts.mkdir(parents=True)
    (folder / "cloud" / "barclamp.yml").write_text(BARCLAMP)
    (scripts / "10-look.sh").write_text(LOOK)
    barclamp = await asyncio.to_thread(load_folder, folder / "cloud")
    await site.rack.store.change_graph(lambda session: import_barclamps(session, [barclamp]))
    [racked] = site.rack.machines
    await racked.machine.on()
    node = (await site.discovered(racked))["name"]
    await site.bind(node, "cloud-look")

    async def choose(attrib: str, value: object) -> list[str]:
        await site.set_attrib(node, attrib, value)
        plan = await site.plan()
        return [line for install in plan["installs"] for line in install["missing"] if "provisioner-" in line]

    wrong = await choose("provisioner-user-data", USER_DATA.replace("yes", "maybe"))
    assert any("line 7: package_update: 'maybe' is not of type 'boolean'" in line for line in wrong), wrong
    lacking = await choose("provisioner-user-data", USER_DATA)
    assert any("has no secret database" in line for line in lacking), lacking
    assert await choose("provisioner-secrets", {"database": SECRET}) == []
    await site.commit()
    await site.active(node, "provisioner-os-install", "crowbar-installed-node", "cloud-look")
    seen = (await site.wall(node, "cloud-look"))["seen"]
    assert seen["hostname"] == node
    assert isinstance(seen, dict)
    return seen


async def _check_secrecy(site: Site, folder: Path, recorded: Recorded) -> None:
    """The secret is in nothing that machines were served, in no log, and nowhere in the server's home."""
    served = recorded.text()
    assert b"authorized_keys" in recorded.answers["/api/v2/install/config"], "the recorder works"
    for text in (SECRET, PLAIN):
        assert text.encode() not in served, f"{text} was served over HTTP"
    logs = await site.number("SELECT count(*) FROM run_logs WHERE position(:text IN text) > 0", text=SECRET)
    events = await site.number("SELECT count(*) FROM events WHERE position(:text IN data::text) > 0", text=SECRET)
    runs = await site.number("SELECT count(*) FROM runs WHERE position(:text IN staged::text) > 0", text=SECRET)
    assert (logs, events, runs) == (0, 0, 0)
    told = await site.number("SELECT count(*) FROM run_logs WHERE position('cloud-init is done' IN text) > 0")
    assert told == 1, "the log of the run tells it"
    files = [path for path in (folder / "home").rglob("*") if path.is_file() and "images" not in path.parts]
    assert len(files) > 100, "the database is among them"
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


SCENARIOS = {scenario.__name__: scenario for scenario in (cloud_init,)}

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(SCENARIOS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3])))
