"""A `rackwright mesh run` on one of five servers, for tests."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.mesh.fleet_datastore import wires
from tests.support.waiting import PATIENCE

from rackwright.lab.mesh_fleet import Fleet

SERVERS = ["s1", "s2", "s3", "s4", "s5"]
ALIVE = dict.fromkeys(SERVERS, "alive")


class MeshRun:
    """`rackwright mesh run --json` on one server, and what it has told so far."""

    def __init__(self, fleet: Fleet, server: str, key: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "rackwright", "mesh", "run", *arguments, "--key", str(key), "--json"]
        command += ["--dir", str(fleet.home(server))]
        self.output = fleet.folder / f"run-{time.monotonic_ns()}.json"
        with self.output.open("w") as file:
            self.process = subprocess.Popen(
                wires(fleet).command(server, command), stdout=file, stderr=subprocess.PIPE, text=True
            )

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.output.read_text().splitlines() if line.endswith("}")]

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [line["event"] for line in self.lines() if line.get("event", {}).get("kind") == kind]

    def states(self, target: str) -> list[dict[str, Any]]:
        return [event["state"] for event in self.events("state") if event["target"] == target]

    def outcomes(self) -> dict[str, str]:
        return {event["target"]: event["state"] for event in self.events("task")}

    def wait(self) -> int:
        try:
            _, trouble = self.process.communicate(timeout=PATIENCE)
        finally:
            self.process.kill()
        assert "Traceback" not in trouble, trouble
        self.trouble = trouble
        return self.process.returncode
