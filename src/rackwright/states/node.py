"""Entry point of the engine on a node: reads a job from standard input, runs it, and streams events as lines of JSON.

The job is an object: `files` (path -> text, or {"base64": ...} for binary content), `sls` (a list, or null for what
top.sls says), `variables`, `secrets` (names of variables that must not be shown), `node` (facts to add to the node's
own), `mode`, `test` and `parallel`. Each line has an `event`: planned, start, log, end, and last report or refused.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any, Dict, Optional, TextIO

from .catalogue import Catalogue
from .combine import State
from .facts import collect_facts
from .plan import build_plan, collect_secret_texts
from .reading.tree import Tree
from .refusal import RunRefused, refuse
from .running.execution import MODES, PlanExecution, change_to_home_directory
from .running.record import Mask, Record

OK, FAILED, REFUSED = 0, 1, 2


def main(source: TextIO = sys.stdin, sink: TextIO = sys.stdout) -> int:
    """Run the job that `source` holds; return 0 if all is well, 1 if a state failed, 2 if the run was refused."""

    def send_event(event: str, **fields: Any) -> None:
        sink.write(json.dumps({"event": event, **fields}, default=str) + "\n")
        sink.flush()

    with tempfile.TemporaryDirectory(prefix="rackwright-states-") as folder:
        mask = Mask()
        try:
            job = _parse_job(source.read())
            variables = job.get("variables") or {}
            mask.add(text for name in job.get("secrets") or () for text in collect_secret_texts(variables.get(name)))
            unpack_files(Path(folder), job.get("files", {}))
            return _run_job(Path(folder), job, mask, send_event)
        except RunRefused as refused:
            send_event("refused", errors=[mask.text(str(problem)) for problem in refused.problems])
            return REFUSED


def _parse_job(text: str) -> Dict[str, Any]:
    try:
        job = json.loads(text)
    except ValueError as error:
        raise refuse(f"the job is not JSON: {error}") from None
    if not isinstance(job, dict) or not isinstance(job.get("files", {}), dict):
        raise refuse("the job is not an object with `files`")
    if job.get("mode", "ansible") not in MODES:
        raise refuse(f"the mode {job.get('mode')!r} is none of {', '.join(MODES)}")
    return job


def unpack_files(folder: Path, files: Dict[str, Any]) -> None:
    """Write the files of a job into a folder. Raises RunRefused for a path that leads out of it."""
    for name, content in files.items():
        parts = PurePosixPath(name).parts
        if not parts or parts[0] == "/" or ".." in parts:
            raise refuse(f"the job's file {name!r} would lie outside the tree")
        path = folder.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        else:
            from base64 import b64decode

            path.write_bytes(b64decode(content["base64"]))
            path.chmod(int(content.get("mode", 0o600)))


def _load_catalogue(folder: Path) -> Optional[Catalogue]:
    """Return a catalogue with the tree's own modules; None if it has none, to save loading the code that verifies."""
    if not (folder / "_modules").is_dir():
        return None
    from .extensions import load_tree_catalogue

    return load_tree_catalogue(folder)


def _run_job(folder: Path, job: Dict[str, Any], mask: Mask, send_event: Any) -> int:
    job_facts = job.get("node") or {}
    node = {**collect_facts(str(job_facts.get("id", ""))), **job_facts}
    plan = build_plan(Tree(folder), job.get("sls"), job.get("variables") or {}, node, _load_catalogue(folder))
    mask.add(plan.secrets)

    def on_event(kind: str, state: State, detail: Any) -> None:
        if kind == "end":
            record: Record = detail
            send_event("end", state=record.as_json(mask), outputs=mask.value(record.outputs))
        else:
            line = {} if detail is None else {"line": mask.text(str(detail))}
            send_event(
                kind, id=mask.text(state.id), name=mask.text(state.name), function=state.qualified_function, **line
            )

    change_to_home_directory()
    execution = PlanExecution(
        plan, job.get("mode", "ansible"), bool(job.get("test")), int(job.get("parallel") or 0), on_event, mask
    )
    send_event("planned", states=len(plan.states))
    report = execution.execute()
    send_event("report", **report.as_json())
    return FAILED if report.failed else OK
