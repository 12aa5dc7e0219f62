"""Where the content of a file comes from: the state tree, a path of this machine or a URL, and templates over it.

Templates are rendered on the machine that applies the state, strict about undefined names, in Jinja's sandbox.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple, Union

from ..module import Arguments, Context, StateError
from .files import read_bytes

DOWNLOAD_LIMIT = 2 * 1024**3
TREE_SCHEMES = ("salt://", "tree://")


def tree_path(source: str, root: Path) -> str:
    """The path of `source` within the state tree, or the absolute path it is. Nothing leads out of the tree."""
    for scheme in TREE_SCHEMES:
        if source.startswith(scheme):
            source = source[len(scheme) :].lstrip("/")
            break
    else:
        if source.startswith("file://"):
            source = source[len("file://") :]
        if source.startswith("/"):
            return source
    base = os.path.realpath(root)
    path = os.path.realpath(os.path.join(base, source))
    if os.path.commonpath([base, path]) != base:
        raise StateError(f"source {source!r} leads out of the state tree {root}; name a file inside it")
    return path


def is_url(source: str) -> bool:
    return source.startswith(("http://", "https://"))


def place_of(path: str) -> str:
    """Where a path lies, with the links in the folders above it resolved but not its own."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def refuse_own_source(path: str, source: str, why: str) -> None:
    """Refuse to write to `path` where that is the file that is read. `why` says what would become of it."""
    if place_of(path) == os.path.realpath(source):
        raise StateError(
            f"source and name are the same file, {path}: {why}; keep the source elsewhere, such as in the state tree"
        )


def is_below(path: str, folder: str) -> bool:
    """Whether a path is the folder itself or lies in it."""
    path, folder = os.path.realpath(path), os.path.realpath(folder)
    return os.path.commonpath([path, folder]) == folder


def read_source(source: str, context: Context, wanted_hash: str = "") -> bytes:
    """The bytes `source` stands for, checked against `wanted_hash` if there is one."""
    if is_url(source):
        if not wanted_hash:
            raise StateError(f"source {source} needs a source_hash: what comes over the network has to be checked")
        content = download(source)
    else:
        path = tree_path(source, context.root)
        found = read_bytes(path)
        if found is None:
            raise StateError(f"there is no source {source!r}: {path} does not exist{_near(path)}")
        content = found
    if wanted_hash:
        check_hash(content, wanted_hash, source)
    return content


def first_source(sources: Union[str, List[str]], context: Context) -> str:
    """Salt's list of sources: the first that exists. A URL counts as existing."""
    candidates = [sources] if isinstance(sources, str) else list(sources)
    for source in candidates:
        if is_url(source) or os.path.exists(tree_path(source, context.root)):
            return source
    if len(candidates) == 1:
        path = tree_path(candidates[0], context.root)
        raise StateError(f"there is no source {candidates[0]!r}: {path} does not exist{_near(path)}")
    raise StateError(f"none of the sources exists: {', '.join(candidates)}")


def _near(path: str) -> str:
    import difflib

    folder = os.path.dirname(path)
    names = os.listdir(folder) if os.path.isdir(folder) else []
    near = difflib.get_close_matches(os.path.basename(path), names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def download(url: str, timeout: float = 60.0) -> bytes:
    import urllib.error
    import urllib.request

    if not is_url(url):
        raise StateError(f"{url} is no http or https address")
    request = urllib.request.Request(url, headers={"User-Agent": "rackwright"})  # noqa: S310 - checked above
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310 - checked above
            content: bytes = answer.read(DOWNLOAD_LIMIT + 1)
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise StateError(f"cannot fetch {url}: {error}") from error
    if len(content) > DOWNLOAD_LIMIT:
        raise StateError(f"{url} is larger than {DOWNLOAD_LIMIT} bytes; fetch it another way")
    return content


def split_hash(wanted: str) -> Tuple[str, str]:
    """'sha256=HEX', 'sha256:HEX' or a bare digest, whose length says which it is."""
    algorithm, _, digest = wanted.strip().replace("=", ":", 1).rpartition(":")
    algorithm = algorithm.lower() or {64: "sha256", 96: "sha384", 128: "sha512"}.get(len(digest), "")
    if algorithm not in ("sha256", "sha384", "sha512") or not re.fullmatch(r"[0-9a-fA-F]+", digest):
        raise StateError(f"{wanted!r} is no hash to check against; write sha256=HEX (or sha384, sha512)")
    return algorithm, digest.lower()


def hexdigest(algorithm: str, content: bytes) -> str:
    import hashlib

    return hashlib.new(algorithm, content).hexdigest()


def check_hash(content: bytes, wanted: str, source: str) -> None:
    algorithm, digest = split_hash(wanted)
    has = hexdigest(algorithm, content)
    if has != digest:
        raise StateError(
            f"{source} is not what was asked for: its {algorithm} is {has}, wanted {digest}; nothing was changed"
        )


def render(text: str, name: str, arguments: Arguments, context: Context) -> str:
    """Jinja over `text` with the names a state file has, then `defaults`, then `context`, the later winning."""
    import jinja2

    try:
        return str(_environment(context).from_string(text).render(_names(arguments, context)))
    except jinja2.TemplateSyntaxError as error:
        raise StateError(f"{error.filename or name}:{error.lineno}: {error.message}") from error
    except jinja2.UndefinedError as error:
        raise StateError(f"{name}: {error.message}; give it in context:, in vars/ or with --var") from error
    except jinja2.TemplateError as error:
        raise StateError(f"{name}: {error.message or type(error).__name__}") from error


def _names(arguments: Arguments, context: Context) -> Dict[str, Any]:
    from ..reading.template_environment import template_variables

    return {
        **template_variables(context.variables, context.node),
        **(arguments.get("defaults") or {}),
        **(arguments.get("context") or {}),
    }


def _environment(context: Context) -> Any:
    """The state files' own environment, except that a file keeps the newline at its end."""
    from ..reading.template_environment import make_environment
    from ..reading.tree import Tree

    with context.lock:
        if "content.jinja" not in context.once:
            made = make_environment(Tree(context.root))
            context.once["content.jinja"] = made.overlay(keep_trailing_newline=True)
        return context.once["content.jinja"]


def wanted_content(arguments: Arguments, context: Context, has: Optional[bytes] = None) -> Optional[bytes]:
    """The content that `contents` or `source` of `arguments` give; None if neither is there.

    `has` is what is on the machine now: if it already has the wanted hash, nothing is fetched.
    """
    contents, source = arguments.get("contents"), arguments.get("source")
    if contents is not None:
        return _from_contents(contents, arguments, context)
    if not source:
        return None
    chosen = first_source(source, context)
    wanted_hash = arguments.get("source_hash") or ""
    templated = arguments.get("template")
    if wanted_hash and has is not None and not templated:
        algorithm, digest = split_hash(wanted_hash)
        if hexdigest(algorithm, has) == digest:
            return has
    content = read_source(chosen, context, wanted_hash)
    if not templated:
        return content
    return render(decode(content, chosen), chosen, arguments, context).encode()


def _from_contents(contents: Any, arguments: Arguments, context: Context) -> bytes:
    text = "\n".join(str(line) for line in contents) if isinstance(contents, list) else str(contents)
    if arguments.get("template"):
        text = render(text, f"contents of {arguments['name']}", arguments, context)
    if text and arguments.get("contents_newline", True) and not text.endswith("\n"):
        text += "\n"
    return text.encode()


def decode(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise StateError(f"{name} is no UTF-8 text (byte {error.start}), so it cannot be treated as text") from error
