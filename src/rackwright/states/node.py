"""The engine on a node: reads one job from standard input, runs it, and streams what happens as lines of JSON.

The job is an object: `files` (path -> text, or {"base64": ...} for what is no text), `sls` (a list, or null for what
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
    """Run the job that `source` holds; 0 all well, 1 something failed, 2 refused before anything was touched."""

    def say(event: str, **more: Any) -> None:
        sink.write(json.dumps({"event": event, **more}, default=str) + "\n")
        sink.flush()

    with tempfile.TemporaryDirectory(prefix="rackwright-states-") as folder:
        mask = Mask()
        try:
            job = _parse_job(source.read())
            variables = job.get("variables") or {}
            mask.add(text for name in job.get("secrets") or () for text in collect_secret_texts(variables.get(name)))
            unpack_files(Path(folder), job.get("files", {}))
            return _run_job(Path(folder), job, mask, say)
        except RunRefused as refused:
            say("refused", errors=[mask.text(str(problem)) for problem in refused.problems])
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
    """With the tree's own modules, if it has any; verifying them is nothing to load for every run."""
    if not (folder / "_modules").is_dir():
        return None
    from .extensions import load_tree_catalogue

    return load_tree_catalogue(folder)


def _run_job(folder: Path, job: Dict[str, Any], mask: Mask, say: Any) -> int:
    given = job.get("node") or {}
    node = {**collect_facts(str(given.get("id", ""))), **given}
    made = build_plan(Tree(folder), job.get("sls"), job.get("variables") or {}, node, _load_catalogue(folder))
    mask.add(made.secrets)

    def hear(kind: str, state: State, detail: Any) -> None:
        if kind == "end":
            record: Record = detail
            say("end", state=record.as_json(mask), outputs=mask.value(record.outputs))
        else:
            line = {} if detail is None else {"line": mask.text(str(detail))}
            say(kind, id=mask.text(state.id), name=mask.text(state.name), function=state.full, **line)

    change_to_home_directory()
    run = PlanExecution(
        made, job.get("mode", "ansible"), bool(job.get("test")), int(job.get("parallel") or 0), hear, mask
    )
    say("planned", states=len(made.states))
    report = run.go()
    say("report", **report.as_json())
    return FAILED if report.failed else OK
