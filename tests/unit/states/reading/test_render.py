"""The process that renders: a fork only where there is one thread, else an interpreter with the same limits."""

import _thread
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.waiting import PATIENCE

from rackwright.states.bundle import build_bundle
from rackwright.states.plan import build_plan
from rackwright.states.reading import render
from rackwright.states.reading.tree import Tree, locate_tree

from ..conftest import Refusal, Write


@pytest.fixture
def another_thread() -> Iterator[None]:
    """A thread that `threading` does not know of, as a library may start it."""
    started, end, ended = (_thread.allocate_lock() for _ in range(3))
    for lock in (started, end, ended):
        lock.acquire()

    def wait() -> None:
        started.release()
        end.acquire()
        ended.release()

    _thread.start_new_thread(wait, ())
    started.acquire()
    yield
    end.release()
    ended.acquire()


@pytest.fixture
def no_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise AssertionError("forked")

    monkeypatch.setattr(os, "fork", fork)


@pytest.mark.usefixtures("another_thread")
def test_a_thread_that_python_does_not_list_counts() -> None:
    assert not render.is_only_thread()


@pytest.mark.usefixtures("another_thread", "no_fork")
class TestWithThreads:
    def test_nothing_is_forked_and_the_variables_are_the_same(self, write: Write) -> None:
        write(**{"vars/all.yml": "ports:\n  80: web\n"}, init="{{ ports[80] }}-{{ grains.id }}:\n  test.nop\n")
        tree, sls = locate_tree(write())
        assert [state.id for state in build_plan(tree, sls, {}, {"id": "node-1"}).states] == ["web-node-1"]

    def test_a_template_that_never_ends_is_stopped(self, refusal: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(render, "CPU_SECONDS", 1)
        monkeypatch.setattr(render, "WALL_SECONDS", PATIENCE)
        problems = refusal("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}\n")
        assert problems == ["init.sls: rendering was stopped: it used more than 1 s of CPU time"]

    def test_a_template_that_eats_memory_is_stopped(self, refusal: Refusal) -> None:
        assert "memory" in refusal("{% set x = 'x' * 4000000000 %}\na:\n  test.nop\n")[0]

    def test_an_interpreter_that_does_not_start_is_told(
        self, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "executable", "/bin/false")
        variables = {"large": "x" * 1_000_000}  # more than a pipe holds
        assert refusal("{{ 1 }}:\n  test.nop\n", variables)[0].startswith("init.sls: rendering was stopped")

    def test_nothing_is_imported_from_the_working_directory(
        self, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        here = tmp_path / "here"
        here.mkdir()
        for name in ("json", "jinja2", "rackwright"):
            (here / f"{name}.py").write_text("raise SystemExit(3)\n")
        monkeypatch.chdir(here)
        plan = build_plan(Tree(write(init="s{{ 1 + 1 }}:\n  test.nop\n")), ["init"])
        assert [state.id for state in plan.states] == ["s2"]


def test_without_a_template_no_process_is_started(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: object) -> None:
        raise AssertionError("started")

    monkeypatch.setattr(render.Renderer, "_start", start)
    plan = build_plan(Tree(write(init="a:\n  test.nop\n")), ["init"])
    assert [state.id for state in plan.states] == ["a"]


@pytest.mark.parametrize("threads", [1, 2])
def test_the_engine_renders_from_its_zipapp(threads: int, write: Write, tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    bundle = build_bundle().write(tmp_path / "bundle")
    root = write(**{"tree/init": "s{{ 1 + 1 }}:\n  test.nop\n"}) / "tree"
    script = f"""
import sys, threading
sys.path.insert(0, {str(bundle)!r})
from pathlib import Path
from rackwright.states.plan import build_plan
from rackwright.states.reading import render
from rackwright.states.reading.tree import Tree
end = threading.Event()
for _ in range({threads} - 1):
    threading.Thread(target=end.wait).start()
plan = build_plan(Tree(Path({str(root)!r})), ["init"])
print(render.__file__.startswith({str(bundle)!r}), render.is_only_thread(), *[state.id for state in plan.states])
end.set()
"""
    # Without `site` there is nothing but the standard library and the zipapp.
    ended = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["True", str(threads == 1), "s2"], ended.stderr
