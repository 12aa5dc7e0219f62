"""Renders Jinja templates in a child process with limits on its CPU time and memory.

Names that are not defined are an error, the sandbox forbids what reaches outside the template, and each line of the
result knows the line of the source it came from. For a file without a tag of Jinja no child is started.

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
    """What the child is started with: its limits, the tree, and the variables and facts to render with."""

    cpu_seconds: int
    memory_bytes: int
    tree: Tree
    variables: Dict[str, Any]
    node: Dict[str, Any]


class _Child(NamedTuple):
    """The process that renders, and the pipes to and from it."""

    pid: int
    requests: int
    responses: int

    def end(self) -> int:
        """Kill the process and return its exit status, which says what ended it if it was not this kill."""
        os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        os.close(self.requests)
        os.close(self.responses)
        return status


class Renderer:
    """A context manager that renders the templates of one tree with one set of variables; the child ends with it."""

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
        """Return the rendered text, and the source line of each of its lines (None if nothing was rendered)."""
        first_line = text.split("\n", 1)[0]
        if first_line.startswith("#!"):
            pipeline = [part.strip() for part in first_line[2:].split("|")]
            if pipeline == ["yaml"]:
                return text, None
            if pipeline != ["jinja", "yaml"]:
                raise refuse(f"the renderer {first_line[2:].strip()!r} is not known; jinja|yaml and yaml are", path, 1)
        if not has_template(text):
            return text, None
        response = self._request({"path": path, "text": text})
        if "error" in response:
            raise refuse(response["error"], response.get("file") or path, response.get("line") or 0)
        return response["text"], response["lines"]

    def _request(self, request: Dict[str, Any]) -> Dict[str, Any]:
        try:
            child = self._child or self._start()
            _write_message(child.requests, json.dumps(request).encode())
            response = _read_message(child.responses, time.monotonic() + WALL_SECONDS)
        except (BrokenPipeError, TimeoutError):
            response = None
        if response is None:
            raise refuse(f"rendering was stopped: {_exceeded_limit(self._stop())}", request["path"])
        decoded: Dict[str, Any] = json.loads(response)
        return decoded

    def _start(self) -> _Child:
        render_input = _RenderInput(CPU_SECONDS, MEMORY_BYTES, self._tree, self._variables, self._node)
        child_reads, requests = os.pipe()
        responses, child_writes = os.pipe()
        is_fork = is_only_thread()
        pid = os.fork() if is_fork else _start_interpreter(child_reads, child_writes)
        if pid == 0:
            os.close(requests)
            os.close(responses)
            _serve_requests(child_reads, child_writes, render_input)
        os.close(child_reads)
        os.close(child_writes)
        self._child = _Child(pid, requests, responses)
        if not is_fork:
            import pickle  # JSON would turn keys that are numbers into text

            _write_message(requests, pickle.dumps(render_input))
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


def _start_interpreter(input_pipe: int, output_pipe: int) -> int:
    """Start a Python that renders, with these ends of two pipes, and return its process id.

    It imports from where this process does, a zipapp included, and from nowhere else: not from the working directory.
    It does without `site`, which would only look for that path again.
    """
    import subprocess

    package = __name__.rpartition(".")[0]
    program = f"import sys; sys.path[:] = sys.argv[3:]; from {package}.render import child_main; child_main()"
    paths = [os.path.abspath(path) for path in sys.path if path]
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", program, str(input_pipe), str(output_pipe), *paths],
        pass_fds=(input_pipe, output_pipe),
    )
    # Waited for by its id, as a fork is; without this Popen would warn that it still runs.
    process.returncode = 0
    return process.pid


def _exceeded_limit(status: int) -> str:
    """Return which limit ended the child, by its exit status."""
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        return f"it used more than {CPU_SECONDS} s of CPU time"
    return f"it took more than {WALL_SECONDS:.0f} s, or more memory than {MEMORY_BYTES >> 20} MiB"


def _write_message(descriptor: int, message: bytes) -> None:
    remaining = memoryview(len(message).to_bytes(8, "big") + message)
    while remaining:
        remaining = remaining[os.write(descriptor, remaining) :]


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
    """Render in an interpreter that was started for it: what a fork already has comes as the first message."""
    import pickle

    input_pipe, output_pipe = int(sys.argv[1]), int(sys.argv[2])
    render_input = _read_message(input_pipe)
    if render_input is None:  # the parent ended before it sent what to render with
        os._exit(0)
    _serve_requests(input_pipe, output_pipe, pickle.loads(render_input))  # noqa: S301 - written by our own parent, into a pipe of ours


def _serve_requests(input_pipe: int, output_pipe: int, render_input: _RenderInput) -> NoReturn:
    """Render one template after the other until the input ends, then exit. Never returns into the caller's stack."""
    status = 1
    try:
        import resource

        signal.signal(signal.SIGINT, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CPU, (render_input.cpu_seconds, render_input.cpu_seconds + 1))
        resource.setrlimit(resource.RLIMIT_AS, (render_input.memory_bytes, render_input.memory_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        templates = _Templates(render_input.tree, render_input.variables, render_input.node)
        while True:
            request = _read_message(input_pipe)
            if request is None:
                status = 0
                break
            _write_message(output_pipe, json.dumps(templates.respond(json.loads(request))).encode())
    finally:
        os._exit(status)


_LINE_MARK = re.compile("\ue000(\\d+)\ue001")


class _Templates:
    """The child's sandboxed Jinja environment, which renders the requests."""

    def __init__(self, tree: Tree, variables: Dict[str, Any], node: Dict[str, Any]) -> None:
        from .template_environment import make_environment, template_variables

        self._environment = make_environment(tree)
        self._names = template_variables(variables, node)

    def respond(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Return the rendered text and its source lines, or the error with its line."""
        import jinja2

        path, source = request["path"], request["text"]
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
        except Exception as error:  # noqa: BLE001 - any exception of a template is a mistake in the template
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
    """Return the text with the number of its source line put before each line."""
    return "\n".join(f"\ue000{line + index}\ue001{part}" for index, part in enumerate(data.split("\n")))


def _source_lines(marked: str) -> List[int]:
    lines, source_line = [], 1
    for text in marked.split("\n"):
        # The last mark before text that is not blank is the line the text was written on.
        mark_line = 0
        for mark in _LINE_MARK.finditer(text):
            if not mark_line or not _LINE_MARK.sub("", text[: mark.start()]).strip():
                mark_line = int(mark.group(1))
        source_line = mark_line or source_line
        lines.append(source_line)
    return lines


def _template_line(error: BaseException, path: str) -> int:
    """Return the line of the template that led to the error: the deepest one in its traceback."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
