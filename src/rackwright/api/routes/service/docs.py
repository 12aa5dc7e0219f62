"""/api/v2/openapi.json and /api/v2/docs: the description for programs and for people.

The page is plain HTML made here, with nothing from elsewhere: data centres are often without the Internet.
"""

import html
import json
import re
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse

from rackwright.api.context import ScopedReader

router = APIRouter(include_in_schema=False)

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1c2430 }
code, pre { font: 13px/1.45 ui-monospace, monospace } pre { background: #f3f5f8; padding: .6rem; overflow: auto }
details { border-top: 1px solid #d9dfe7; padding: .3rem 0 } summary { cursor: pointer }
b.get { color: #1667b7 } b.post { color: #1b7f3b } b.patch, b.put { color: #9a6700 } b.delete { color: #b42318 }
td { padding: .1rem .8rem .1rem 0; vertical-align: top } h2 { margin-top: 2rem }
@media (prefers-color-scheme: dark) { body { background: #12161c; color: #dbe2ea } pre { background: #1c2430 } }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


@router.get("/openapi.json")
async def get_openapi_document(caller: ScopedReader, request: Request) -> JSONResponse:
    """The API's description."""
    app: FastAPI = request.app
    return JSONResponse(app.openapi())


@router.get("/docs")
async def get_docs(caller: ScopedReader, request: Request) -> HTMLResponse:
    """The same for people."""
    app: FastAPI = request.app
    return HTMLResponse(page(app.openapi()), headers={"Content-Security-Policy": _POLICY})


def page(document: dict[str, Any]) -> str:
    """The whole description as HTML."""
    tags: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            shown = _operation(document, path, method, operation)
            tags.setdefault(operation.get("tags", ["other"])[0], []).append(shown)
    listed = "".join(f"<h2>{html.escape(name)}</h2>{''.join(parts)}" for name, parts in sorted(tags.items()))
    title = f"{html.escape(document['info']['title'])} {html.escape(document['info']['version'])}"
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
        f"<h1>{title}</h1>{_prose(document['info']['description'])}{listed}</html>"
    )


def _prose(text: str) -> str:
    shown = html.escape(text)
    shown = re.sub(r"`([^`]+)`", r"<code>\1</code>", shown)
    shown = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", shown)
    return "".join(f"<p>{part}</p>" for part in shown.split("\n\n"))


def _operation(document: dict[str, Any], path: str, method: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{html.escape(one['name'])}</code><td>{one['in']}<td>{html.escape(one.get('description', ''))}"
        for one in operation.get("parameters", ())
    )
    parts = [_prose(operation.get("description", "")), f"<table>{rows}</table>" if rows else ""]
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<p>Body, <code>{html.escape(kind)}</code>:</p><pre>{_example(document, content)}</pre>")
    for status, response in operation["responses"].items():
        response = _resolved(document, response)
        parts.append(f"<p><code>{status}</code> {html.escape(response['description'])}</p>")
        if status.startswith("2"):
            for content in response.get("content", {}).values():
                parts.append(f"<pre>{_example(document, content)}</pre>")
    head = f"<b class={method}>{method.upper()}</b> <code>{html.escape(path)}</code>"
    says = html.escape(operation.get("description", "").split("\n")[0])
    return f"<details><summary>{head} {says}</summary>{''.join(parts)}</details>"


def _resolved(document: dict[str, Any], one: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in one:
        found: Any = document
        for step in one["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        one = found
    return one


def _example(document: dict[str, Any], content: dict[str, Any]) -> str:
    given = next(iter(content.get("examples", {}).values()), None)
    value = given["value"] if given else _sample(document, content.get("schema", {}), 4)
    return html.escape(json.dumps(value, indent=1, ensure_ascii=False))


def _sample(document: dict[str, Any], schema: dict[str, Any], depth: int) -> Any:
    """A value that fits a schema, the given examples first."""
    schema = _resolved(document, schema)
    for given in _given(schema):
        return given
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        return _sample(document, part, depth)
    match schema.get("type"):
        case "object" if depth:
            return {name: _sample(document, one, depth - 1) for name, one in schema.get("properties", {}).items()}
        case "array" if depth and "items" in schema:
            return [_sample(document, schema["items"], depth - 1)]
        case kind:
            return {"string": "", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}.get(
                str(kind)
            )


def _given(schema: dict[str, Any]) -> Iterator[Any]:
    yield from schema.get("examples", ())
    for key in ("example", "const"):
        if key in schema:
            yield schema[key]
    yield from schema.get("enum", ())
