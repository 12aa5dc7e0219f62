"""The process in which states are checked and run: a child of the agent that loads its modules before there is a job.

Its argument is a folder for the files of the job. The first line on standard input is the job, and the process does a
single job: what a module or a state leaves behind in it ends with it. How it is started and read is `engine_pool.py`.
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
"""Modules that nearly every run uses and would only load when it needs them."""


def main(scratch: Path) -> int:
    _reset_process_settings()
    line = sys.stdin.readline()
    if not line:
        return 0
    job = json.loads(line)
    if job["do"] == "check":
        sys.stdout.write(json.dumps(run_check.check_job(job, scratch)) + "\n")
        return 0
    return run_worker.run_job(job, scratch)


def _reset_process_settings() -> None:
    """Reset the umask and the OOM score to those of a shell.

    The agent makes private files and is not killed when memory is short; neither is for what the states start.
    """
    os.umask(0o022)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("0")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
