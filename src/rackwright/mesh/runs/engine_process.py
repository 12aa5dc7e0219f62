"""The process in which states are checked and run: a child of the agent that has loaded all before it is needed.

Its argument is a folder for what comes with the job. The first line on standard input is its job, and it does one job
only: what a module or a state leaves behind in it ends with it. How it is started and listened to is `engine_pool.py`.
"""

import contextlib
import json
import os
import sys
from pathlib import Path

from rackwright.mesh.runs import run_check, run_worker
from rackwright.states.modules import cmd, file, test
from rackwright.states.reading import quick_yaml, render

LOADED = (quick_yaml, render, cmd, file, test)
"""What nearly every run uses and would load late."""


def main(scratch: Path) -> int:
    _as_if_from_a_shell()
    line = sys.stdin.readline()
    if not line:
        return 0
    job = json.loads(line)
    if job["do"] == "check":
        sys.stdout.write(json.dumps(run_check.checked(job, scratch)) + "\n")
        return 0
    return run_worker.work(job, scratch)


def _as_if_from_a_shell() -> None:
    """The agent hides its files and is spared when memory is short; neither is for what the states start."""
    os.umask(0o022)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("0")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
