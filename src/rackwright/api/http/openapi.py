"""The API's OpenAPI 3.1 document, with names that read well in a generated client, and every refusal declared.

`openapi.json` in the repository is written from it; a check fails when the two differ.
"""

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, iter_route_contexts

from rackwright.api.http.paging import ListDependency
from rackwright.api.http.patching import JSON_PATCH_SCHEMA
from rackwright.api.http.problems import MEDIA_TYPE, URN, Fault, Problem

DESCRIPTION = """
Takes bare machines to running workloads. Everything with a name is addressed by its name or its id.

**Lists** come in pages: `{"items": [...], "next": "..."}`. Send `next` as `cursor` for the next page, with the same
`sort` and filters. A filter may be repeated: any of its values will do. `fields` chooses properties.

**Changes.** Every object has an `etag`, also in the header `ETag`: send it as `If-Match` with a change, and it is
refused (412) if somebody else was faster. A `PATCH` is a merge patch (RFC 7396) or a JSON Patch (RFC 6902), by its
content type. A `POST` with an `Idempotency-Key` is done once, however often it is sent within a day.

**Refusals** are problem details (RFC 9457). `type` is stable; `detail` says what to do; `pointer` says where.
"""

_REFUSALS = {
    "401": ("Unauthenticated", "unauthenticated", "Say who you are: send a token as `Authorization: Bearer ...`."),
    "403": ("Forbidden", "forbidden", "Your role viewer does not allow this; it takes the permission write."),
    "404": ("NotFound", "not-found", "There is no node 'n9.rack.example'."),
    "409": ("Conflict", "nothing-proposed", "Deployment 'web' has no open proposal. Propose one, then edit it."),
    "410": ("Gone", "cursor-gone", "What happened before this is no longer kept. Start anew."),
    "412": ("Stale", "stale", "Somebody changed node n1.rack.example since you read it. Read it again."),
    "413": ("TooLarge", "too-large", "A body may have 1048576 bytes; this one has more."),
    "415": ("Unsupported", "unsupported-media-type", "A body of type 'text/plain' is not taken here."),
    "422": ("Invalid", "invalid", "/macs/0: 'zz' is no MAC address; write it like 52:54:00:12:34:56."),
    "429": ("TooMany", "too-many-requests", "Too many requests from your address. Wait a little."),
    "502": ("BmcFailed", "hammer-failed", "The BMC of n1.rack.example does not answer."),
    "503": ("Unreachable", "database-unreachable", "The database does not answer now. Try again in a moment."),
}

_ALWAYS = ("401", "403", "422", "503")
_CHANGING = ("404", "409", "412", "413", "415")
_FOR_MACHINES = {"machines", "boot", "people"}
"""Tags of routes that callers reach without a login too; each of these routes has a rate limit of its own."""
_PUBLIC = ("404", "409", "413", "415", "422", "429", "503")


def operation_id(route: APIRoute) -> str:
    """Return the name of the route's function in the spelling of JavaScript: `list_nodes` is `listNodes`."""
    first, *others = route.name.split("_")
    return first + "".join(word.capitalize() for word in others)


def install(app: FastAPI) -> None:
    """Have the application describe itself by `document`, which is made at most once."""

    def description() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = document(app)
        return app.openapi_schema

    app.openapi = description  # type: ignore[method-assign]


def document(app: FastAPI) -> dict[str, Any]:
    """Return the whole OpenAPI document of an application."""
    openapi = get_openapi(
        title=app.title,
        version=app.version,
        description=DESCRIPTION.strip(),
        routes=app.routes,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    schemas = openapi["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}", mode="serialization")
    problem.pop("$defs", None)
    schemas["Problem"] = problem
    schemas["Fault"] = Fault.model_json_schema(mode="serialization")
    schemas["JsonPatch"] = JSON_PATCH_SCHEMA
    openapi["components"]["responses"] = {
        name: _refusal(int(status), kind, detail) for status, (name, kind, detail) in _REFUSALS.items()
    }
    _declare_lists(app, openapi)
    for path, method, operation in _operations(openapi):
        _declare_refusals(path, method, operation)
        _declare_headers(operation, schemas)
    return openapi


def _declare_lists(app: FastAPI, openapi: dict[str, Any]) -> None:
    """Add the query parameters of lists, which the framework does not see."""
    for route in iter_route_contexts(app.routes):
        api_route = route.original_route
        if not isinstance(api_route, APIRoute) or not api_route.include_in_schema:
            continue
        for dependency in api_route.dependant.dependencies:
            if isinstance(dependency.call, ListDependency):
                parameters = openapi["paths"][route.path]["get"].setdefault("parameters", [])
                parameters.extend(dependency.call.openapi_parameters())


def _refusal(status: int, kind: str, detail: str) -> dict[str, Any]:
    """Return the description of a refusal, with an example."""
    example = {"type": URN + kind, "title": kind.replace("-", " ").capitalize(), "status": status, "detail": detail}
    content = {"schema": {"$ref": "#/components/schemas/Problem"}, "example": example}
    return {"description": detail, "content": {MEDIA_TYPE: content}}


def _operations(openapi: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _declare_refusals(path: str, method: str, operation: dict[str, Any]) -> None:
    """Add the refusals this operation may answer with; the framework's own 422 gives way to ours."""
    responses = operation["responses"]
    responses.pop("422", None)
    statuses = set(_ALWAYS if operation.get("security") else _PUBLIC)
    if method != "get":
        statuses |= set(_CHANGING)
    if set(operation.get("tags", ())) & _FOR_MACHINES:
        statuses |= {*_PUBLIC, "401", "403"}
    if "{" in path:
        statuses.add("404")
    if path.endswith(("/why", "/events")):
        statuses.add("404")
    if path.endswith("/diff"):
        statuses.add("409")
    if path.endswith(("/power", "/boot_device")):
        statuses |= {"409", "502"}
    statuses |= {status for status in responses if status in _REFUSALS}
    for status in sorted(statuses):
        responses[status] = {"$ref": f"#/components/responses/{_REFUSALS[status][0]}"}


_ETAG = {"description": "The version of the object, for If-Match.", "schema": {"type": "string"}}
_LOCATION = {"description": "Where the new object is.", "schema": {"type": "string"}}


def _declare_headers(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Add ETag to responses with an object that has one, and Location to those of new objects."""
    for status, response in operation["responses"].items():
        if status not in ("200", "201"):
            continue
        ref = response.get("content", {}).get("application/json", {}).get("schema", {}).get("$ref", "")
        if "etag" in schemas.get(ref.rpartition("/")[2], {}).get("properties", {}):
            response.setdefault("headers", {})["ETag"] = _ETAG
            if status == "201":
                response["headers"]["Location"] = _LOCATION
