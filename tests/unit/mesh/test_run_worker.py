"""The engine of a target, as the agent starts it: one job in, events out, and questions in between."""

import json
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any


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


def run(work: dict[str, Any], modules: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    """The exit status and the events of a worker, whose agent has these modules."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rackwright.mesh.run_engine"],
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
    return process.wait(60), events


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
