"""PATCH requests: JSON Patch (RFC 6902) and merge patch (RFC 7396), told apart by the content type.

A resource declares which part of it people edit, as a model. The patch is applied to that part as it is in the
database, inside the transaction, and the result is checked against the model.
"""

import contextlib
import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, TypeVar

import jsonpatch
from fastapi import Request
from jsonpointer import JsonPointerException, resolve_pointer
from pydantic import BaseModel, ValidationError

from rackwright.api.http.bodies import DEEPEST, JSON, JSON_PATCH, LARGEST_BODY, MERGE_PATCH, depth_of
from rackwright.api.http.problems import MOST_ERRORS_READ, faults_in_document
from rackwright.domain.barclamps.value_errors import json_pointer
from rackwright.domain.catalogue import Json, JsonObject
from rackwright.domain.errors import Invalid, RackwrightError
from rackwright.domain.sealed import SEAL, is_sealed

E = TypeVar("E", bound=BaseModel)

MOST_OPERATIONS = 1000


class PatchTestFailed(RackwrightError):
    """A `test` of the patch does not hold, so nothing was changed."""

    status = 409
    type = "patch-test-failed"


class Patch:
    """A patch as the client sent it."""

    def __init__(self, media_type: str, content: Json) -> None:
        self.media_type = media_type
        self.content = content

    def apply(self, current: E) -> E:
        """Return the object as the patch wants it."""
        document = current.model_dump(mode="json")
        secrets = set(_sealed_values(document))
        try:
            patched = (
                self._apply_operations(document)
                if self.media_type == JSON_PATCH
                else merge_patch(document, self.content)
            )
            too_deep = depth_of(patched) > DEEPEST
        except RecursionError:  # each operation can put a value into another
            too_deep = True
        if too_deep:
            raise Invalid(f"This would nest values more than {DEEPEST} levels deep.")
        if not set(_sealed_values(patched)) <= secrets:
            raise Invalid("A patch cannot copy or move a secret to another place; set it there.")
        try:
            return type(current).model_validate(patched)
        except ValidationError as error:
            first = faults_in_document(error.errors(include_url=False)[:MOST_ERRORS_READ], patched)[0]
            raise Invalid(first.detail, first.pointer or "") from None

    def _apply_operations(self, document: Json) -> Json:
        """Return the document, changed in place by all operations.

        With a copy for each operation, a thousand of them took a minute.
        """
        operations = self.content
        if not isinstance(operations, list):
            raise Invalid(
                'A JSON Patch is a list of operations, such as [{"op": "replace", "path": "/x", "value": 1}].'
            )
        if len(operations) > MOST_OPERATIONS:
            raise Invalid(f"A patch may have {MOST_OPERATIONS} operations; this one has {len(operations)}.")
        bytes_left = LARGEST_BODY - len(json.dumps(document))
        for number, operation in enumerate(operations):
            if not isinstance(operation, dict):
                raise Invalid(f"Operation {number} of the patch is no object.", f"/{number}")
            bytes_left -= _size_of_copy(document, operation)
            # Some copies of copies are enough to fill any memory.
            if bytes_left < 0 and operation.get("op") == "copy":
                raise Invalid(
                    f"Operation {number} would make the object larger than {LARGEST_BODY} bytes.", f"/{number}"
                )
            document = _apply_operation(document, operation, number)
        return document


def _size_of_copy(document: Json, operation: JsonObject) -> int:
    """Return how many bytes a `copy` adds; 0 if it cannot be done, which is refused when it is applied."""
    if operation.get("op") != "copy":
        return 0
    with contextlib.suppress(JsonPointerException, TypeError):
        return len(json.dumps(resolve_pointer(document, str(operation.get("from")))))
    return 0


def _apply_operation(document: Json, operation: JsonObject, number: int) -> Json:
    if any(_names_seal(operation.get(name)) for name in ("path", "from")):
        raise Invalid(f"Operation {number} of the patch reaches into a sealed value ({SEAL}).", f"/{number}")
    try:
        # Later operations may change what this one adds; the patch itself stays as it came, to be tried again.
        patched: Json = jsonpatch.JsonPatch([deepcopy(operation)]).apply(document, in_place=True)
    except jsonpatch.JsonPatchTestFailed as error:
        raise PatchTestFailed(f"Operation {number}: {error} So nothing was changed.") from None
    except (jsonpatch.JsonPatchException, JsonPointerException, TypeError, KeyError, ValueError) as error:
        raise Invalid(f"Operation {number} of the patch cannot be done: {error}", f"/{number}") from None
    return patched


def _sealed_values(value: Json, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every sealed value with the path where it lies; all items of a list have the same path."""
    if isinstance(value, dict):
        if is_sealed(value):
            yield path, str(value[SEAL])
        for key, inner in value.items():
            yield from _sealed_values(inner, f"{path}{json_pointer((key,))}")
    elif isinstance(value, list):
        for inner in value:
            yield from _sealed_values(inner, f"{path}/-")


def _names_seal(path: Json) -> bool:
    """Return whether a JSON pointer leads to or through the key of a seal, whose name has nothing to be escaped."""
    return isinstance(path, str) and SEAL in path.split("/")


def merge_patch(document: Json, patch: Json) -> Json:
    """Return the document changed by a merge patch (RFC 7396): null removes, objects merge, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


async def read_patch(request: Request) -> Patch:
    """Return the patch of a request. Size, depth and type of the body have been checked before."""
    body = await request.body()
    if not body:
        raise Invalid(f"A PATCH needs a body: {MERGE_PATCH} or {JSON_PATCH}.")
    media_type = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    return Patch(media_type, json.loads(body))


def patch_body(model: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI description of a PATCH body; `model` is what people edit."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("required", None)
    for field in schema.get("properties", {}).values():
        field.pop("default", None)
    merge = {"schema": schema, "examples": {"merge": {"value": example}}}
    first = next(iter(example))
    operations = [{"op": "replace", "path": f"/{first}", "value": example[first]}]
    patch = {
        "schema": {"$ref": "#/components/schemas/JsonPatch"},
        "examples": {"operations": {"value": operations}},
    }
    content = {MERGE_PATCH: merge, JSON_PATCH: patch, JSON: merge}
    return {"requestBody": {"required": True, "content": content}}


JSON_PATCH_SCHEMA: dict[str, Any] = {
    "title": "JsonPatch",
    "description": "Operations on the object, done in order, all of them or none (RFC 6902).",
    "type": "array",
    "maxItems": MOST_OPERATIONS,
    "items": {
        "type": "object",
        "required": ["op", "path"],
        "properties": {
            "op": {"type": "string", "enum": ["add", "remove", "replace", "move", "copy", "test"]},
            "path": {"type": "string", "examples": ["/description"]},
            "from": {"type": "string"},
            "value": {},
        },
    },
}
