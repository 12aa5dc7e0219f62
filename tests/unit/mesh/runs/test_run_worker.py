"""The engine of a target, as the agent starts it: a job on its input, events and questions on its output."""

import functools
import http.server
import json
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.programs import make_ssh_key
from tests.support.waiting import PATIENCE

from rackwright.mesh.runs import run_check, run_start
from rackwright.states import extensions


def job(folder: Path, text: str) -> dict[str, Any]:
    return {
        "do": "run",
        "run": "r1",
        "name": "s1",
        "files": {"init.sls": {"base64": b64encode(text.encode()).decode(), "mode": 0o600}},
        "sls": ["init"],
        "mode": "ansible",
        "test": False,
        "parallel": 0,
        "variables": {"password": "hunter22"},
        "secrets": ["password"],
        "signers": str(folder / "signers"),
        "seen": str(folder / "seen.json"),
        "targets": ["s1"],
    }


def engine(work: dict[str, Any]) -> list[str]:
    """The command of one, with a folder for what comes with its job."""
    scratch = Path(work["seen"]).with_name("scratch")
    scratch.mkdir()
    return [sys.executable, "-m", "rackwright.mesh.runs.engine_process", str(scratch)]


def run(work: dict[str, Any], modules: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    """The exit status and the events of a worker, whose agent has these modules."""
    process = subprocess.Popen(
        engine(work),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        umask=0o077,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(work) + "\n")
    process.stdin.flush()
    events = []
    for line in process.stdout:
        event = json.loads(line)
        events.append(event)
        if event["kind"] == "ask":
            value = sorted(modules) if event["what"] == "modules" else modules.get(event["about"]["name"])
            process.stdin.write(json.dumps({"answer": event["ask"], "value": value}) + "\n")
            process.stdin.flush()
    process.stdin.close()
    return process.wait(PATIENCE), events


def ends(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event["state"] for event in events if event["kind"] == "state"]


def test_states_do_not_inherit_the_agents_umask_and_secrets_stay_secret(tmp_path: Path) -> None:
    text = "mask:\n  cmd.run:\n    - name: umask; echo {{ password }}\n"
    status, events = run(job(tmp_path, text), {})
    assert status == 0
    assert ends(events)[0]["changes"]["stdout"].splitlines()[0] == "0022"
    assert "hunter22" not in json.dumps(events)


def test_a_failed_state_is_told_and_so_is_the_sum(tmp_path: Path) -> None:
    status, events = run(job(tmp_path, "a:\n  test.fail_without_changes: []\nb:\n  test.nop: []\n"), {})
    assert status == 1
    assert [state["outcome"] for state in ends(events)] == ["failed", "unchanged"]
    assert events[-1]["kind"] == "report"
    assert events[-1]["failed"] is True


def test_a_module_without_a_trusted_signature_refuses_the_run_before_anything_is_touched(tmp_path: Path) -> None:
    code = b64encode(b"FUNCTIONS = ()\n").decode()
    text = f"before:\n  cmd.run:\n    - name: touch {tmp_path}/touched\nuse:\n  greeter.hello: []\n"
    status, events = run(
        job(tmp_path, text), {"greeter": {"code": code, "manifest": "", "origin": "datastore:greeter"}}
    )
    assert status == 2
    assert "not signed" in events[-1]["errors"][0]
    assert not (tmp_path / "touched").exists()


MODULE = b"""
from rackwright.states.module import Check, Result, StateFunction


def _look(arguments, context):
    return Check({"greeting": "hello"}, "nobody has been greeted")


def _greet(arguments, check, context):
    return Result(True, check.changes, "hello")


FUNCTIONS = (StateFunction("hello", "Greets.", (), _look, _greet),)
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A web folder on this machine: where it lies, and its address."""
    folder = tmp_path / "web"
    folder.mkdir()
    serve = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield folder, f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def signed_module(folder: Path, trusted: Path) -> None:
    """The module in a web folder, signed by a key that the engine is told to trust."""
    key = make_ssh_key(trusted.parent / "key")
    trusted.write_text(f"ops {Path(f'{key}.pub').read_text()}")
    (folder / "greeter.py").write_bytes(MODULE)
    (folder / "greeter.py.manifest").write_text(extensions.sign(MODULE, "greeter", "1.0", key).dump())


GREET = "greet:\n  greeter.hello: []\nplain:\n  test.nop: []\n"
WAYS_TO_NAME_IT = {
    "function below": GREET,
    "short form": "greet: greeter.hello\nplain: test.nop\n",
    "flow style": "{greet: {greeter.hello: []}, plain: {test.nop: []}}\n",
    "quoted": "greet: {'greeter.hello': []}\nplain:\n  test.nop: []\n",
    "function in the list": "greet:\n  greeter:\n    - hello\nplain:\n  test.nop: []\n",
    "put together": "{% set who = 'greet' ~ 'er' %}\ngreet:\n  {{ who }}.hello: []\nplain:\n  test.nop: []\n",
}


@pytest.mark.parametrize("do", ["run", "check"])
def test_a_module_of_a_web_folder_is_used_if_it_is_signed(tmp_path: Path, web: tuple[Path, str], do: str) -> None:
    signed_module(web[0], tmp_path / "signers")
    work = {**job(tmp_path, GREET), "modules_from": [web[1]], "do": do, "facts": {"s1": {"id": "s1"}}, "modules": {}}
    if do == "check":
        done = subprocess.run(
            engine(work), input=json.dumps(work), capture_output=True, text=True, timeout=PATIENCE, check=True
        )
        assert json.loads(done.stdout) == {"states": {"s1": 2}}
        return
    status, events = run(work, {})
    assert status == 0, events
    assert [state["changes"] for state in ends(events)] == [{"greeting": "hello"}, {}]


def test_a_module_of_a_web_folder_is_found_however_the_states_name_it(tmp_path: Path, web: tuple[Path, str]) -> None:
    signed_module(web[0], tmp_path / "signers")
    extra = {"modules_from": [web[1]], "facts": {"s1": {"id": "s1"}}, "modules": {}}
    for number, (way, states) in enumerate(WAYS_TO_NAME_IT.items()):
        folder = tmp_path / str(number)
        assert run_check.check_job({**job(tmp_path, states), **extra}, folder) == {"states": {"s1": 2}}, way


def test_a_module_of_a_web_folder_that_was_altered_refuses_the_run(tmp_path: Path, web: tuple[Path, str]) -> None:
    signed_module(web[0], tmp_path / "signers")
    (web[0] / "greeter.py").write_bytes(MODULE + b"\n# and more\n")
    status, events = run({**job(tmp_path, GREET), "modules_from": [web[1]]}, {})
    assert status == 2
    assert "altered after it was signed" in events[-1]["errors"][0]


def test_what_the_datastore_has_comes_before_a_web_folder(tmp_path: Path, web: tuple[Path, str]) -> None:
    signed_module(web[0], tmp_path / "signers")
    code, manifest = ((web[0] / name).read_bytes() for name in ("greeter.py", "greeter.py.manifest"))
    (web[0] / "greeter.py").write_bytes(b"raise SystemExit('never loaded')")
    module = {"code": b64encode(code).decode(), "manifest": b64encode(manifest).decode(), "origin": "datastore"}
    status, events = run({**job(tmp_path, GREET), "modules_from": [web[1]]}, {"greeter": module})
    assert status == 0, events


def test_what_the_datastore_has_is_found_however_the_states_name_it(tmp_path: Path, web: tuple[Path, str]) -> None:
    signed_module(web[0], tmp_path / "signers")
    code, manifest = ((web[0] / name).read_bytes() for name in ("greeter.py", "greeter.py.manifest"))
    module = {"code": b64encode(code).decode(), "manifest": b64encode(manifest).decode(), "origin": "datastore"}
    status, events = run(job(tmp_path, WAYS_TO_NAME_IT["function in the list"]), {"greeter": module})
    assert status == 0, events
    files = {"top.sls": {"base64": b64encode(b"greet: {{ who }}.hello").decode()}}
    assert run_start.mentioned_modules(["greeter", "other"], files, {"who": "greeter"}) == ["greeter"]


@pytest.mark.parametrize("where", ["http://127.0.0.1:1/", "file:///etc"])
def test_a_web_folder_that_cannot_be_used_refuses_the_run_in_words(tmp_path: Path, where: str) -> None:
    status, events = run({**job(tmp_path, GREET), "modules_from": [where]}, {})
    assert status == 2
    assert "cannot fetch" in events[-1]["errors"][0] or "no http" in events[-1]["errors"][0]
