"""A tree of states in a temporary folder, and a way to plan and run it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackwright.states.plan import build_plan
from rackwright.states.reading.tree import locate_tree
from rackwright.states.refusal import RunRefused
from rackwright.states.running.execution import PlanExecution
from rackwright.states.running.record import Report

Write = Callable[..., Path]
Apply = Callable[..., Report]
Refusal = Callable[..., list[str]]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write files of a tree: `write(init="...", **{"web/init": "..."})`; names without a suffix are SLS."""

    def write_files(**files: str) -> Path:
        for name, text in files.items():
            path = tmp_path / (name if "." in name else f"{name}.sls")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write_files


@pytest.fixture
def apply(write: Write) -> Apply:
    """Run one SLS and return the report."""

    def run(text: str, mode: str = "ansible", test: bool = False, variables: dict[str, Any] | None = None) -> Report:
        tree, sls = locate_tree(write(init=text))
        return PlanExecution(build_plan(tree, sls, variables, {"id": "node-1"}), mode, test).execute()

    return run


@pytest.fixture
def refusal(write: Write) -> Refusal:
    """Plan a tree that must be refused, and return what is told."""

    def refused(text: str = "", variables: dict[str, Any] | None = None, **files: str) -> list[str]:
        tree, sls = locate_tree(write(init=text, **files) if text else write(**files))
        with pytest.raises(RunRefused) as caught:
            build_plan(tree, sls, variables, {"id": "node-1"})
        return [str(problem) for problem in caught.value.problems]

    return refused
