"""Reads the content of files from the state tree, a path of this machine or a URL, and renders templates in it.

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
    """Return the path of `source` in the state tree, or the absolute path that it is. Nothing leads out of the tree."""
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
    """Return a path with the links in the folders above it resolved, but not the path itself if it is a link."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def refuse_own_source(path: str, source: str, why: str) -> None:
    """Refuse to write to `path` if it is the same file as `source`. `why` says what would happen to the file."""
    if place_of(path) == os.path.realpath(source):
        raise StateError(
            f"source and name are the same file, {path}: {why}; keep the source elsewhere, such as in the state tree"
        )


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is the folder itself or lies in it."""
    path, folder = os.path.realpath(path), os.path.realpath(folder)
    return os.path.commonpath([path, folder]) == folder


def read_source(source: str, context: Context, wanted_hash: str = "") -> bytes:
    """Return the bytes of `source`, checked against `wanted_hash` if there is one."""
    if is_url(source):
        if not wanted_hash:
            raise StateError(f"source {source} needs a source_hash: what comes over the network has to be checked")
        content = download(source)
    else:
        path = tree_path(source, context.root)
        file_content = read_bytes(path)
        if file_content is None:
            raise StateError(f"there is no source {source!r}: {path} does not exist{_suggest_name(path)}")
        content = file_content
    if wanted_hash:
        check_hash(content, wanted_hash, source)
    return content


def first_source(sources: Union[str, List[str]], context: Context) -> str:
    """Return the first source that exists, as with Salt's list of sources. A URL counts as existing."""
    candidates = [sources] if isinstance(sources, str) else list(sources)
    for source in candidates:
        if is_url(source) or os.path.exists(tree_path(source, context.root)):
            return source
    if len(candidates) == 1:
        path = tree_path(candidates[0], context.root)
        raise StateError(f"there is no source {candidates[0]!r}: {path} does not exist{_suggest_name(path)}")
    raise StateError(f"none of the sources exists: {', '.join(candidates)}")


def _suggest_name(path: str) -> str:
    import difflib

    folder = os.path.dirname(path)
    names = os.listdir(folder) if os.path.isdir(folder) else []
    matches = difflib.get_close_matches(os.path.basename(path), names, n=1)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def download(url: str, timeout: float = 60.0) -> bytes:
    import urllib.error
    import urllib.request

    if not is_url(url):
        raise StateError(f"{url} is no http or https address")
    request = urllib.request.Request(url, headers={"User-Agent": "rackwright"})  # noqa: S310 - checked above
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:  # noqa: S310 - checked above
            content: bytes = response.read(DOWNLOAD_LIMIT + 1)
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise StateError(f"cannot fetch {url}: {error}") from error
    if len(content) > DOWNLOAD_LIMIT:
        raise StateError(f"{url} is larger than {DOWNLOAD_LIMIT} bytes; fetch it another way")
    return content


def split_hash(wanted: str) -> Tuple[str, str]:
    """Return algorithm and digest of 'sha256=HEX', 'sha256:HEX' or a bare digest, whose length tells the algorithm."""
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
    actual = hexdigest(algorithm, content)
    if actual != digest:
        raise StateError(
            f"{source} is not what was asked for: its {algorithm} is {actual}, wanted {digest}; nothing was changed"
        )


def render(text: str, name: str, arguments: Arguments, context: Context) -> str:
    """Render a text with Jinja and the variables of state files, then `defaults`, then `context`; the later win."""
    import jinja2

    try:
        return str(_environment(context).from_string(text).render(_template_variables(arguments, context)))
    except jinja2.TemplateSyntaxError as error:
        raise StateError(f"{error.filename or name}:{error.lineno}: {error.message}") from error
    except jinja2.UndefinedError as error:
        raise StateError(f"{name}: {error.message}; give it in context:, in vars/ or with --var") from error
    except jinja2.TemplateError as error:
        raise StateError(f"{name}: {error.message or type(error).__name__}") from error


def _template_variables(arguments: Arguments, context: Context) -> Dict[str, Any]:
    from ..reading.template_environment import template_variables

    return {
        **template_variables(context.variables, context.node),
        **(arguments.get("defaults") or {}),
        **(arguments.get("context") or {}),
    }


def _environment(context: Context) -> Any:
    """Return the Jinja environment of state files, except that a file keeps the newline at its end."""
    from ..reading.template_environment import make_environment
    from ..reading.tree import Tree

    with context.lock:
        if "content.jinja" not in context.once:
            jinja_environment = make_environment(Tree(context.root))
            context.once["content.jinja"] = jinja_environment.overlay(keep_trailing_newline=True)
        return context.once["content.jinja"]


def wanted_content(arguments: Arguments, context: Context, has: Optional[bytes] = None) -> Optional[bytes]:
    """Return the content that the arguments `contents` or `source` stand for; None if neither is there.

    `has` is the content on the machine now: if it already has the wanted hash, nothing is fetched.
    """
    contents, source = arguments.get("contents"), arguments.get("source")
    if contents is not None:
        return _render_contents(contents, arguments, context)
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


def _render_contents(contents: Any, arguments: Arguments, context: Context) -> bytes:
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
