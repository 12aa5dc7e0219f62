"""The web page: the files that `make ui` built, served at `/`. The page gets all it shows from the API.

Files under /assets carry their digest in their name and are kept by browsers for good; the page itself is asked for
again each time, with an ETag. Any other path that is not the server's own is a view within the page.
"""

import hashlib
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fastapi import FastAPI, Request, Response
from starlette.routing import Match, Route
from starlette.types import Scope

BUILT = Path(__file__).parents[2] / "static"
SERVER_PATHS = ("/api/", "/boot/", "/boot.ipxe", "/grub/", "/files/", "/assets/", "/healthz", "/readyz", "/metrics")
"""Paths that are never views within the page: one that does not exist is a plain 404 or 405."""

CACHE_FOR_GOOD = "public, max-age=31536000, immutable"
REVALIDATE = "no-cache"
SECURITY_HEADERS = {
    # Styles of single elements are set by scripts of ours, which needs no 'unsafe-inline'.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
NOT_BUILT = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>Rackwright</title>"
    "<h1>The web page is not built</h1><p>Run <code>make ui</code> where this server's source is, then load this page "
    "again. The API is there: <a href=/api/v2/docs>/api/v2/docs</a>, and so is the command line.</p></html>"
)


@dataclass(frozen=True)
class BuiltFile:
    """A built file as it goes over the wire."""

    body: bytes
    gzipped: bytes | None
    media_type: str
    etag: str
    cache: str


class PageRoute(Route):
    """The route of every path that is not the server's own. Routes that take other methods there still answer 405."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path = scope.get("path", "")
        if any(path == prefix or path.startswith(prefix.rstrip("/") + "/") for prefix in SERVER_PATHS):
            return Match.NONE, {}
        return super().matches(scope)


def add_page(app: FastAPI, built: Path = BUILT) -> None:
    """Serve the web page with the application. Call it after all other routes are added."""

    async def asset(request: Request) -> Response:
        return _answer(request, _built_files(built).get(request.url.path))

    async def view(request: Request) -> Response:
        files = _built_files(built)
        if not files:
            return Response(NOT_BUILT, 503, {**SECURITY_HEADERS, "Cache-Control": "no-store"}, "text/html")
        return _answer(request, files.get(request.url.path) or files["/index.html"])

    app.router.routes.append(Route("/assets/{name}", asset, methods=["GET"], include_in_schema=False))
    app.router.routes.append(PageRoute("/{place:path}", view, methods=["GET"], include_in_schema=False))


def _answer(request: Request, file: BuiltFile | None) -> Response:
    if file is None:
        return Response(
            "There is no such file. Load the page again: there is a newer one.", 404, SECURITY_HEADERS, "text/plain"
        )
    headers = {**SECURITY_HEADERS, "Cache-Control": file.cache, "ETag": file.etag, "Vary": "Accept-Encoding"}
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if file.gzipped is not None and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.gzipped, headers={**headers, "Content-Encoding": "gzip"}, media_type=file.media_type)
    return Response(file.body, headers=headers, media_type=file.media_type)


def _built_files(built: Path) -> Mapping[str, BuiltFile]:
    """Return all built files by path.

    They are read once for each build, so that a build made while the server runs is seen, and never by halves.
    """
    index = built / "index.html"
    return _read_files(built, index.stat().st_mtime_ns) if index.is_file() else {}


@lru_cache(maxsize=2)
def _read_files(built: Path, _version: int) -> Mapping[str, BuiltFile]:
    files: dict[str, BuiltFile] = {}
    for path in built.rglob("*"):
        if not path.is_file() or path.suffix == ".gz":
            continue
        body = path.read_bytes()
        compressed = path.with_name(f"{path.name}.gz")
        name = "/" + path.relative_to(built).as_posix()
        files[name] = BuiltFile(
            body,
            compressed.read_bytes() if compressed.is_file() else None,
            mimetypes.guess_type(path.name)[0] or "application/octet-stream",
            f'"{hashlib.sha256(body).hexdigest()[:24]}"',
            CACHE_FOR_GOOD if name.startswith("/assets/") else REVALIDATE,
        )
    return files
