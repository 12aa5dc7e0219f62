"""/api/v2/openapi.json and /api/v2/docs: the API's description for programs and for people.

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
    return HTMLResponse(render_page(app.openapi()), headers={"Content-Security-Policy": _POLICY})


def render_page(document: dict[str, Any]) -> str:
    """Return the whole OpenAPI document as HTML."""
    tags: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            rendered = _render_operation(document, path, method, operation)
            tags.setdefault(operation.get("tags", ["other"])[0], []).append(rendered)
    sections = "".join(f"<h2>{html.escape(name)}</h2>{''.join(parts)}" for name, parts in sorted(tags.items()))
    title = f"{html.escape(document['info']['title'])} {html.escape(document['info']['version'])}"
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
        f"<h1>{title}</h1>{_render_prose(document['info']['description'])}{sections}</html>"
    )


def _render_prose(text: str) -> str:
    """Return text as HTML paragraphs; of Markdown it knows `code` and **bold**."""
    escaped = html.escape(text)
    escaped = re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped)
    escaped = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", escaped)
    return "".join(f"<p>{paragraph}</p>" for paragraph in escaped.split("\n\n"))


def _render_operation(document: dict[str, Any], path: str, method: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{html.escape(parameter['name'])}</code><td>{parameter['in']}"
        f"<td>{html.escape(parameter.get('description', ''))}"
        for parameter in operation.get("parameters", ())
    )
    parts = [_render_prose(operation.get("description", "")), f"<table>{rows}</table>" if rows else ""]
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<p>Body, <code>{html.escape(media_type)}</code>:</p><pre>{_example(document, content)}</pre>")
    for status, response in operation["responses"].items():
        response = _resolve(document, response)
        parts.append(f"<p><code>{status}</code> {html.escape(response['description'])}</p>")
        if status.startswith("2"):
            for content in response.get("content", {}).values():
                parts.append(f"<pre>{_example(document, content)}</pre>")
    head = f"<b class={method}>{method.upper()}</b> <code>{html.escape(path)}</code>"
    summary = html.escape(operation.get("description", "").split("\n")[0])
    return f"<details><summary>{head} {summary}</summary>{''.join(parts)}</details>"


def _resolve(document: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """Return the value that a $ref leads to; any other value as it is."""
    while "$ref" in value:
        target: Any = document
        for step in value["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        value = target
    return value


def _example(document: dict[str, Any], content: dict[str, Any]) -> str:
    example = next(iter(content.get("examples", {}).values()), None)
    value = example["value"] if example else _sample(document, content.get("schema", {}), 4)
    return html.escape(json.dumps(value, indent=1, ensure_ascii=False))


def _sample(document: dict[str, Any], schema: dict[str, Any], depth: int) -> Any:
    """Return a value that fits a schema, the schema's own examples first."""
    schema = _resolve(document, schema)
    for example in _examples(schema):
        return example
    for alternative in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        return _sample(document, alternative, depth)
    match schema.get("type"):
        case "object" if depth:
            return {
                name: _sample(document, property_schema, depth - 1)
                for name, property_schema in schema.get("properties", {}).items()
            }
        case "array" if depth and "items" in schema:
            return [_sample(document, schema["items"], depth - 1)]
        case type_name:
            return {"string": "", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}.get(
                str(type_name)
            )


def _examples(schema: dict[str, Any]) -> Iterator[Any]:
    """Yield the values that a schema itself names."""
    yield from schema.get("examples", ())
    for key in ("example", "const"):
        if key in schema:
            yield schema[key]
    yield from schema.get("enum", ())
