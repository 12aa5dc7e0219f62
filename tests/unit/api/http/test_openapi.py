"""The API's OpenAPI document, from which clients are generated."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from rackwright.api.app import create_app


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(None).openapi()


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_operations_have_names_of_their_own_that_say_what_is_done_to_what(document: dict[str, Any]) -> None:
    names = Counter(operation["operationId"] for _, operation in _operations(document))
    assert [name for name, times in names.items() if times > 1] == []
    vague = [name for name in names if not re.fullmatch(r"[a-z]+([A-Z][a-z]*)+|login|logout", name)]
    assert vague == []


def test_every_operation_is_described_and_sorted_by_its_resource(document: dict[str, Any]) -> None:
    assert [name for name, operation in _operations(document) if not operation.get("description")] == []
    assert [name for name, operation in _operations(document) if not operation.get("tags")] == []


def test_every_refusal_is_a_problem(document: dict[str, Any]) -> None:
    for name, operation in _operations(document):
        refusals = {
            status: refusal for status, refusal in operation["responses"].items() if status.startswith(("4", "5"))
        }
        assert {"422", "503"} <= refusals.keys(), name
        if operation.get("security"):
            assert {"401", "403"} <= refusals.keys(), name
        for refusal in refusals.values():
            resolved = (
                document["components"]["responses"][refusal["$ref"].rpartition("/")[2]]
                if "$ref" in refusal
                else refusal
            )
            assert resolved["content"]["application/problem+json"]["schema"] == {"$ref": "#/components/schemas/Problem"}


def test_objects_that_can_be_changed_come_with_their_tag(document: dict[str, Any]) -> None:
    node = document["paths"]["/api/v2/nodes/{node}"]
    for method in ("get", "patch"):
        assert "ETag" in node[method]["responses"]["200"]["headers"]
    names = {parameter["name"] for parameter in node["patch"]["parameters"]}
    assert {"node", "If-Match"} <= names
    assert set(node["patch"]["requestBody"]["content"]) == {
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/json",
    }
    posted = document["paths"]["/api/v2/nodes"]["post"]
    assert "Idempotency-Key" in {parameter["name"] for parameter in posted["parameters"]}
    assert {"ETag", "Location"} <= posted["responses"]["201"]["headers"].keys()


def test_no_reference_leads_nowhere(document: dict[str, Any]) -> None:
    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            for inner in value.values():
                yield from references(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from references(inner)

    for reference in set(references(document)):
        value = document
        for step in reference.removeprefix("#/").split("/"):
            assert step in value, reference
            value = value[step]
