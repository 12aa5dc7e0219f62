"""Signatures, modules and secrets of runs: a target refuses forgeries although they are in the datastore."""

import contextlib
import json
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.mesh.mesh_run import SERVERS, MeshRun
from tests.support.mesh.fleet_datastore import wires
from tests.support.waiting import PATIENCE, wait_until

from rackwright.lab.mesh_fleet import Fleet
from rackwright.mesh import control
from rackwright.mesh.identity import trust
from rackwright.mesh.identity.sealing import seal, verify_seal_record
from rackwright.mesh.identity.server_identity import read_certificate
from rackwright.mesh.runs import run_model
from rackwright.mesh.runs.run_model import RunRequest, Targets, pack_tree, task_key
from rackwright.states import extensions

pytestmark = pytest.mark.chaos


@pytest.fixture
def rogue(five: Fleet) -> Callable[..., None]:
    """A member that writes into the datastore what it likes."""

    def act(**wish: Any) -> None:
        url = [f"https://{wires(five).address(server)}:2379" for server in SERVERS]
        program = [sys.executable, "-m", "tests.support.mesh.rogue_member", str(five.home("s5")), *url]
        root = Path(__file__).parents[3]
        subprocess.run(
            wires(five).command("s5", program),
            input=json.dumps(wish),
            text=True,
            check=True,
            timeout=PATIENCE,
            cwd=root,
        )

    return act


def forged(fleet: Fleet, name: str, tree: bytes, key: Path) -> tuple[RunRequest, dict[str, Any]]:
    now = int(time.time())
    digest = run_model.tree_digest(tree)
    cluster_name = str(fleet.ask("s1", "status")["ca"])
    request = RunRequest(name, cluster_name, now, now + 600, digest, Targets(("s2",)), ["init"])
    signature = trust.sign(request.dump().encode(), key)
    run = {"request": request.dump(), "signature": signature, "tree": b64encode(tree).decode(), "targets": ["s2"]}
    return request, run


def refusal(fleet: Fleet, name: str) -> str:
    final_event: dict[str, Any] = {}

    def ended() -> bool:
        for line in control.listen(fleet.home("s1"), "events"):
            event = line["event"]
            if event.get("run") == name and event["kind"] == "task" and event["state"] not in ("pending", "running"):
                final_event.update(event)
        return bool(final_event)

    wait_until(ended, f"{name} has ended", every=0.5)
    assert final_event["state"] == "refused", final_event
    return str(final_event["why"])


def test_what_no_trusted_operator_signed_is_refused_by_the_target_and_not_run(
    five: Fleet, keys: Path, tmp_path: Path, rogue: Callable[..., None]
) -> None:
    proof = tmp_path / "done"
    (tmp_path / "init.sls").write_text(f"harm:\n  cmd.run:\n    - name: touch {proof}\n")
    tree = pack_tree(tmp_path)

    _, unknown = forged(five, "unknown-key", tree, keys / "stranger")
    request, tampered = forged(five, "tampered-task", tree, keys / "operator")
    tampered["request"] = replace(request, sls=["other"]).dump()
    _, altered = forged(five, "altered-tree", tree, keys / "operator")
    (tmp_path / "init.sls").write_text(f"harm:\n  cmd.run:\n    - name: touch {proof} {proof}2\n")
    altered["tree"] = b64encode(pack_tree(tmp_path)).decode()
    request, elsewhere = forged(five, "not-for-s2", tree, keys / "operator")
    other = replace(request, targets=Targets(("s1",)))
    elsewhere |= {"request": other.dump(), "signature": trust.sign(other.dump().encode(), keys / "operator")}
    for run in (unknown, tampered, altered, elsewhere):
        rogue(run=run)
    assert "not trusted" in refusal(five, "unknown-key")
    assert "does not fit" in refusal(five, "tampered-task")
    assert "not those that were signed" in refusal(five, "altered-tree")
    assert "did not sign it for s2" in refusal(five, "not-for-s2")
    assert not proof.exists()
    own = MeshRun(five, "s1", keys / "stranger", str(tmp_path), "--on", "s2")
    assert own.wait() == 1
    assert "not trusted" in own.trouble


def test_a_run_that_was_run_is_not_run_again_when_its_task_is_put_back(
    five: Fleet, keys: Path, tmp_path: Path, rogue: Callable[..., None]
) -> None:
    proof = tmp_path / "lines"
    (tmp_path / "init.sls").write_text(f"once:\n  cmd.run:\n    - name: echo x >> {proof}\n")
    _, run = forged(five, "once-only", pack_tree(tmp_path), keys / "operator")
    rogue(run=run)
    wait_until(proof.exists, "it was run")
    wait_until(lambda: five.ask("s1", "runs")["runs"][-1]["tasks"] == {"s2": "done"}, "it has ended", every=0.2)
    base = f"{run_model.RUNS}once-only/"
    rogue(delete=[f"{base}request", task_key("once-only", "s2")], run=run)
    assert "run here before" in refusal(five, "once-only")
    assert proof.read_text() == "x\n"


MODULE = b"""
from rackwright.states.module import Check, Result, StateFunction


def _look(arguments, context):
    return Check({"greeting": "hello"}, "nobody has been greeted")


def _greet(arguments, check, context):
    return Result(True, check.changes, "hello")


FUNCTIONS = (StateFunction("hello", "Greets.", (), _look, _greet),)
"""


def test_a_module_of_the_datastore_is_used_if_it_is_signed_and_refused_if_it_was_altered(
    five: Fleet, keys: Path, tmp_path: Path, rogue: Callable[..., None]
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "init.sls").write_text("greet:\n  greeter.hello: []\n")
    (tmp_path / "greeter.py").write_bytes(MODULE)
    manifest = extensions.sign(MODULE, "greeter", "1.0", keys / "operator")
    (tmp_path / "greeter.py.manifest").write_text(manifest.dump())
    five.rackwright("s3", "mesh", "module", str(tmp_path / "greeter.py"))
    run = MeshRun(five, "s4", keys / "operator", str(tree), "--on", "s*")
    assert run.wait() == 0, run.trouble or run.lines()
    _, late = forged(five, "altered-module", pack_tree(tree), keys / "operator")
    rogue(keys={f"{run_model.MODULES}/greeter.py": b64encode(MODULE + b"\n# and more\n").decode()}, run=late)
    assert "altered after it was signed" in refusal(five, "altered-module")


def test_a_module_of_a_web_folder_is_fetched_and_verified_by_each_target(
    five: Fleet, keys: Path, tmp_path: Path
) -> None:
    tree, web = tmp_path / "tree", tmp_path / "web"
    tree.mkdir()
    web.mkdir()
    (tree / "init.sls").write_text("greet:\n  welcomer.hello: []\n")
    (web / "welcomer.py").write_bytes(MODULE)
    (web / "welcomer.py.manifest").write_text(extensions.sign(MODULE, "welcomer", "1.0", keys / "operator").dump())
    address = wires(five).address("s1")
    # The only one that listens there: the server has a network of its own.
    program = [sys.executable, "-u", "-m", "http.server", "--bind", address, "--directory", str(web), "8080"]
    with subprocess.Popen(
        wires(five).command("s1", program), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            assert "Serving" in server.stdout.readline()
            where = ["--on", "s*", "--modules", f"http://{address}:8080"]
            run = MeshRun(five, "s4", keys / "operator", str(tree), *where)
            assert run.wait() == 0, run.trouble or run.lines()
            assert [len(run.states(name)) for name in SERVERS] == [1] * 5
            (web / "welcomer.py").write_bytes(MODULE + b"\n# and more\n")
            run = MeshRun(five, "s4", keys / "operator", str(tree), *where)
            assert run.wait() == 1
            assert "altered after it was signed" in run.trouble
        finally:
            server.kill()


def files_containing(fleet: Fleet, text: bytes) -> list[str]:
    """Return the files of all servers that contain a text: those of their datastores, and all others."""
    paths = []
    for path in (path for server in SERVERS for path in fleet.home(server).rglob("*")):
        # A living server: some of its files are gone again, and some are sockets.
        with contextlib.suppress(OSError):
            if text in path.read_bytes():
                paths.append(str(path.relative_to(fleet.folder)))
    return paths


def test_a_secret_reaches_its_targets_and_lies_nowhere_in_the_datastore(
    five: Fleet, keys: Path, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "init.sls").write_text(
        f"show:\n  cmd.run:\n    - name: echo {{{{ password }}}} {{{{ colour }}}} > {tmp_path}/{{{{ node['id'] }}}}\n"
    )
    options = ["--secret", "password=wachtwoord-4711", "--var", "colour=heliotroop-4711"]
    run = MeshRun(five, "s4", keys / "operator", str(tree), "--on", "s1,s2", *options)
    assert run.wait() == 0, run.trouble or run.lines()
    assert {(tmp_path / name).read_text() for name in ("s1", "s2")} == {"wachtwoord-4711 heliotroop-4711\n"}
    assert files_containing(five, b"heliotroop-4711"), "a variable that is no secret is found, so a secret would be"
    assert not files_containing(five, b"wachtwoord-4711")


def test_a_sealed_secret_in_another_run_is_refused(
    five: Fleet, keys: Path, tmp_path: Path, rogue: Callable[..., None]
) -> None:
    """Even of a trusted operator: what was sealed for one run opens in no other."""
    (tmp_path / "init.sls").write_text("show:\n  cmd.run:\n    - name: echo {{ password }}\n")
    packed = pack_tree(tmp_path)
    ca = read_certificate((five.home("s1") / "ca.pem").read_bytes())
    published = five.ask("s1", "seals", targets={"names": ["s2"], "labels": {}, "facts": {}})["seals"]
    request, run = forged(five, "sealed-elsewhere", packed, keys / "operator")
    first = replace(request, id="another-run", secrets=["password"])
    seal_keys = {"s2": verify_seal_record("s2", published["s2"].encode(), ca)}
    sealed = seal({"password": "x"}, seal_keys, first.dump_without_sealed())
    replayed = replace(request, secrets=["password"], sealed=sealed)
    run |= {"request": replayed.dump(), "signature": trust.sign(replayed.dump().encode(), keys / "operator")}
    rogue(run=run)
    assert "sealed for another run" in refusal(five, "sealed-elsewhere")
