"""Jinja, kept at arm's length: a child process renders every template, with limits on its CPU time and memory.

Names that are not defined are an error, the sandbox forbids what reaches outside the template, and each line of the
result knows the line of the source it came from. A file without a tag of Jinja never comes here.

The child is a fork where this process has one thread, which takes almost no time; else it is a new interpreter, because
the fork of a process with threads may hang on a lock that one of them held. Threads are counted by the kernel: Python
does not know of those that a library started, or that were started by other means than `threading`.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
import time
from typing import Any, Dict, List, NamedTuple, NoReturn, Optional, Tuple

from ..refusal import refuse
from .tree import Tree

CPU_SECONDS = 20
MEMORY_BYTES = 1 << 30
WALL_SECONDS = 60.0


_THREAD_FOLDER = "/proc/self/task"


def has_template(text: str) -> bool:
    return "{{" in text or "{%" in text or "{#" in text


class _RenderInput(NamedTuple):
    """What the child has to know: what it may use, and what it renders with."""

    cpu_seconds: int
    memory_bytes: int
    tree: Tree
    variables: Dict[str, Any]
    node: Dict[str, Any]


class _Child(NamedTuple):
    """The process that renders, and the pipes to it."""

    pid: int
    questions: int
    answers: int

    def end(self) -> int:
        """Kill it and return its exit status, which says what ended it if that was not us."""
        os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        os.close(self.questions)
        os.close(self.answers)
        return status


class Renderer:
    """Renders the templates of one tree with one set of variables. Use as a context manager: the child ends with it."""

    def __init__(self, tree: Tree, variables: Dict[str, Any], node: Dict[str, Any]) -> None:
        self._tree = tree
        self._variables = variables
        self._node = node
        self._child: Optional[_Child] = None

    def __enter__(self) -> Renderer:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

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
        try:
            child = self._child or self._start()
            _write_message(child.questions, json.dumps(question).encode())
            answer = _read_message(child.answers, time.monotonic() + WALL_SECONDS)
        except (BrokenPipeError, TimeoutError):
            answer = None
        if answer is None:
            raise refuse(f"rendering was stopped: {_exceeded_limit(self._stop())}", question["path"])
        decoded: Dict[str, Any] = json.loads(answer)
        return decoded

    def _start(self) -> _Child:
        work = _RenderInput(CPU_SECONDS, MEMORY_BYTES, self._tree, self._variables, self._node)
        child_reads, questions = os.pipe()
        answers, child_writes = os.pipe()
        forks = is_only_thread()
        pid = os.fork() if forks else _start_interpreter(child_reads, child_writes)
        if pid == 0:
            os.close(questions)
            os.close(answers)
            _serve_requests(child_reads, child_writes, work)
        os.close(child_reads)
        os.close(child_writes)
        self._child = _Child(pid, questions, answers)
        if not forks:
            import pickle  # JSON would make text of numbers that are keys

            _write_message(questions, pickle.dumps(work))
        return self._child

    def _stop(self) -> int:
        """End the child, if there is one, and return its exit status."""
        child, self._child = self._child, None
        return 0 if child is None else child.end()


def is_only_thread() -> bool:
    """Return whether this process has no other thread, as the kernel counts them; False if it does not say."""
    try:
        return len(os.listdir(_THREAD_FOLDER)) == 1
    except OSError:
        return False


def _start_interpreter(reads: int, writes: int) -> int:
    """Start a Python that renders, with these ends of two pipes, and return its process id.

    It imports from where this process does, a zipapp included, and from nowhere else: not from the working directory.
    It does without `site`, which would only look for that path again.
    """
    import subprocess

    package = __name__.rpartition(".")[0]
    start = f"import sys; sys.path[:] = sys.argv[3:]; from {package}.render import child_main; child_main()"
    paths = [os.path.abspath(path) for path in sys.path if path]
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", start, str(reads), str(writes), *paths], pass_fds=(reads, writes)
    )
    # Waited for by its id, as a fork is; without this Popen would warn that it still runs.
    process.returncode = 0
    return process.pid


def _exceeded_limit(status: int) -> str:
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        return f"it used more than {CPU_SECONDS} s of CPU time"
    return f"it took more than {WALL_SECONDS:.0f} s, or more memory than {MEMORY_BYTES >> 20} MiB"


def _write_message(descriptor: int, message: bytes) -> None:
    whole = memoryview(len(message).to_bytes(8, "big") + message)
    while whole:
        whole = whole[os.write(descriptor, whole) :]


def _read_message(descriptor: int, deadline: Optional[float] = None) -> Optional[bytes]:
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


def child_main() -> NoReturn:
    """Render in an interpreter that was started for it: what a fork has already comes as the first message."""
    import pickle

    reads, writes = int(sys.argv[1]), int(sys.argv[2])
    work = _read_message(reads)
    if work is None:  # the parent ended before it said what to render
        os._exit(0)
    _serve_requests(reads, writes, pickle.loads(work))  # noqa: S301 - written by our own parent, into a pipe of ours


def _serve_requests(reads: int, writes: int, work: _RenderInput) -> NoReturn:
    """Answer one question after the other until the input ends. Never returns into the caller's stack."""
    status = 1
    try:
        import resource

        signal.signal(signal.SIGINT, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CPU, (work.cpu_seconds, work.cpu_seconds + 1))
        resource.setrlimit(resource.RLIMIT_AS, (work.memory_bytes, work.memory_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        templates = _Templates(work.tree, work.variables, work.node)
        while True:
            question = _read_message(reads)
            if question is None:
                status = 0
                break
            _write_message(writes, json.dumps(templates.answer(json.loads(question))).encode())
    finally:
        os._exit(status)


_LINE_MARK = re.compile("\ue000(\\d+)\ue001")


class _Templates:
    """What the child knows: one sandboxed environment."""

    def __init__(self, tree: Tree, variables: Dict[str, Any], node: Dict[str, Any]) -> None:
        from .template_environment import make_environment, template_variables

        self._environment = make_environment(tree)
        self._names = template_variables(variables, node)

    def answer(self, question: Dict[str, Any]) -> Dict[str, Any]:
        import jinja2

        path, source = question["path"], question["text"]
        try:
            text = self._render(path, source, marked=False)
            marked = self._render(path, source, marked=True)
        except jinja2.TemplateSyntaxError as error:
            return {"error": f"not a valid template: {error.message}", "file": error.filename, "line": error.lineno}
        except jinja2.TemplateNotFound as error:
            return {"error": f"no template {error.name!r} in the tree", "line": _template_line(error, path)}
        except jinja2.UndefinedError as error:
            return {"error": f"{error.message}; define it in vars/ or with --var", "line": _template_line(error, path)}
        except MemoryError:
            return {"error": f"rendering needs more memory than {MEMORY_BYTES >> 20} MiB"}
        except Exception as error:  # noqa: BLE001 - whatever a template raises is the template's fault, and told as such
            return {
                "error": f"the template fails: {type(error).__name__}: {error}",
                "line": _template_line(error, path),
            }
        lines = _source_lines(marked)
        # A template may measure its own text; then the marks changed it, and the lines are those of the result.
        if _LINE_MARK.sub("", marked) != text:
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
        for mark in _LINE_MARK.finditer(text):
            if not found or not _LINE_MARK.sub("", text[: mark.start()]).strip():
                found = int(mark.group(1))
        last = found or last
        lines.append(last)
    return lines


def _template_line(error: BaseException, path: str) -> int:
    """The deepest line of the template itself on the way to the error."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
