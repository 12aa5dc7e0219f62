"""Jinja, kept at arm's length: a child process renders every template, with limits on its CPU time and memory.

Names that are not defined are an error, the sandbox forbids what reaches outside the template, and each line of the
result knows the line of the source it came from. A file without a tag of Jinja never comes here.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
import time
from typing import Any, Dict, List, NoReturn, Optional, Tuple

from ..refusal import refuse
from .tree import Tree

CPU_SECONDS = 20
MEMORY_BYTES = 1 << 30
WALL_SECONDS = 60.0


def has_template(text: str) -> bool:
    return "{{" in text or "{%" in text or "{#" in text


class Renderer:
    """Renders the templates of one tree with one set of variables. Use as a context manager: the child ends with it."""

    def __init__(self, tree: Tree, variables: Dict[str, Any], node: Dict[str, Any]) -> None:
        self._tree = tree
        self._variables = variables
        self._node = node
        self._child: Optional[Tuple[int, int, int]] = None

    def __enter__(self) -> Renderer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            pid, to_child, from_child = self._child
            os.close(to_child)
            os.close(from_child)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self._child = None

    def render(self, path: str, text: str) -> Tuple[str, Optional[List[int]]]:
        """The rendered text, and the source line of each of its lines (None where nothing was rendered)."""
        first = text.split("\n", 1)[0]
        if first.startswith("#!"):
            pipeline = [part.strip() for part in first[2:].split("|")]
            if pipeline == ["yaml"]:
                return text, None
            if pipeline != ["jinja", "yaml"]:
                raise refuse(f"the renderer {first[2:].strip()!r} is not known; jinja|yaml and yaml are", path, 1)
        if not has_template(text):
            return text, None
        answer = self._ask({"path": path, "text": text})
        if "error" in answer:
            raise refuse(answer["error"], answer.get("file") or path, answer.get("line") or 0)
        return answer["text"], answer["lines"]

    def _ask(self, question: Dict[str, Any]) -> Dict[str, Any]:
        if self._child is None:
            self._child = self._start()
        _, to_child, from_child = self._child
        try:
            _write(to_child, json.dumps(question).encode())
            answer = _read(from_child, time.monotonic() + WALL_SECONDS)
        except (BrokenPipeError, TimeoutError):
            answer = None
        if answer is None:
            pid = self._child[0]
            told = _limit_told(pid)
            os.close(to_child)
            os.close(from_child)
            self._child = None
            raise refuse(f"rendering was stopped: {told}", question["path"])
        decoded: Dict[str, Any] = json.loads(answer)
        return decoded

    def _start(self) -> Tuple[int, int, int]:
        """A fork where this is the only thread; else a new interpreter, because a fork of threads may hang."""
        down_read, down_write = os.pipe()
        up_read, up_write = os.pipe()
        threading = sys.modules.get("threading")
        if threading is None or threading.active_count() == 1:
            pid = os.fork()
            if pid == 0:
                os.close(down_write)
                os.close(up_read)
                _child(down_read, up_write, self._tree, self._variables, self._node)
        else:
            import subprocess

            package = __name__.rpartition(".")[0]
            start = f"from {package}.render import child_main; child_main({down_read}, {up_write})"
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
            process = subprocess.Popen([sys.executable, "-c", start], pass_fds=(down_read, up_write), env=environment)
            pid = process.pid
            # Ours to wait for, by pid; without this Popen would warn that it still runs.
            process.returncode = 0
            inherited = {"root": str(self._tree.root), "variables": self._variables, "node": self._node}
            _write(down_write, json.dumps(inherited).encode())
        os.close(down_read)
        os.close(up_write)
        return pid, down_write, up_read


def _limit_told(pid: int) -> str:
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        return f"it used more than {CPU_SECONDS} s of CPU time"
    return f"it took more than {WALL_SECONDS:.0f} s, or more memory than {MEMORY_BYTES >> 20} MiB"


def _write(descriptor: int, message: bytes) -> None:
    whole = memoryview(len(message).to_bytes(8, "big") + message)
    while whole:
        whole = whole[os.write(descriptor, whole) :]


def _read(descriptor: int, deadline: Optional[float] = None) -> Optional[bytes]:
    header = _read_exactly(descriptor, 8, deadline)
    return None if header is None else _read_exactly(descriptor, int.from_bytes(header, "big"), deadline)


def _read_exactly(descriptor: int, size: int, deadline: Optional[float]) -> Optional[bytes]:
    parts = bytearray()
    while len(parts) < size:
        if deadline is not None:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
        part = os.read(descriptor, size - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)


def child_main(down: int, up: int) -> NoReturn:
    """The child as an interpreter of its own: what a fork inherits comes as the first message."""
    from pathlib import Path

    inherited = json.loads(_read(down) or b"{}")
    _child(down, up, Tree(Path(inherited["root"])), inherited["variables"], inherited["node"])


def _child(down: int, up: int, tree: Tree, variables: Dict[str, Any], node: Dict[str, Any]) -> NoReturn:
    """Answers one question after the other until its input ends. Never returns into the caller's stack."""
    status = 1
    try:
        import resource

        signal.signal(signal.SIGINT, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        templates = _Templates(tree, variables, node)
        while True:
            question = _read(down)
            if question is None:
                status = 0
                break
            _write(up, json.dumps(templates.answer(json.loads(question))).encode())
    finally:
        os._exit(status)


_MARK = re.compile("\ue000(\\d+)\ue001")


class _Templates:
    """What the child knows: one sandboxed environment."""

    def __init__(self, tree: Tree, variables: Dict[str, Any], node: Dict[str, Any]) -> None:
        from .environment import environment, names

        self._environment = environment(tree)
        self._names = names(variables, node)

    def answer(self, question: Dict[str, Any]) -> Dict[str, Any]:
        import jinja2

        path, source = question["path"], question["text"]
        try:
            text = self._render(path, source, marked=False)
            marked = self._render(path, source, marked=True)
        except jinja2.TemplateSyntaxError as error:
            return {"error": f"not a valid template: {error.message}", "file": error.filename, "line": error.lineno}
        except jinja2.TemplateNotFound as error:
            return {"error": f"no template {error.name!r} in the tree", "line": _line_in(error, path)}
        except jinja2.UndefinedError as error:
            return {"error": f"{error.message}; define it in vars/ or with --var", "line": _line_in(error, path)}
        except MemoryError:
            return {"error": f"rendering needs more memory than {MEMORY_BYTES >> 20} MiB"}
        except Exception as error:  # noqa: BLE001 - whatever a template raises is the template's fault, and told as such
            return {"error": f"the template fails: {type(error).__name__}: {error}", "line": _line_in(error, path)}
        lines = _source_lines(marked)
        # A template may measure its own text; then the marks changed it, and the lines are those of the result.
        if _MARK.sub("", marked) != text:
            lines = list(range(1, text.count("\n") + 2))
        return {"text": text, "lines": lines}

    def _render(self, path: str, source: str, marked: bool) -> str:
        import jinja2
        from jinja2 import nodes

        parsed = self._environment._parse(source, path, path)
        if marked:
            for piece in parsed.find_all(nodes.TemplateData):
                piece.data = _with_marks(piece.data, piece.lineno)
        code = self._environment.compile(parsed, path, path)
        template = jinja2.Template.from_code(self._environment, code, self._environment.make_globals(None))
        return template.render(self._names)


def _with_marks(data: str, line: int) -> str:
    """The text with the number of its source line put before each line."""
    return "\n".join(f"\ue000{line + index}\ue001{part}" for index, part in enumerate(data.split("\n")))


def _source_lines(marked: str) -> List[int]:
    lines, last = [], 1
    for text in marked.split("\n"):
        # The last mark before text that is not blank is the line the text was written on.
        found = 0
        for mark in _MARK.finditer(text):
            if not found or not _MARK.sub("", text[: mark.start()]).strip():
                found = int(mark.group(1))
        last = found or last
        lines.append(last)
    return lines


def _line_in(error: BaseException, path: str) -> int:
    """The deepest line of the template itself on the way to the error."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
