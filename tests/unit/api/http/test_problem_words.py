"""What is wrong with a request is said once, in words, with a pointer to what was sent."""

from typing import Annotated, Any, Literal

import httpx
import pytest
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from rackwright.api.http.problems import faults_in_document, install
from rackwright.api.routes.anneal import CapIn
from rackwright.domain.attributes import check_value
from rackwright.domain.catalogue import Attrib
from rackwright.domain.errors import Invalid


class Inner(BaseModel):
    first: str = Field(min_length=1, max_length=4)


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    cap: Annotated[int, Field(ge=1, le=1000)] | Literal["auto"] = 1
    name: str = "n"
    kind: Literal["a", "b"] = "a"
    on: bool = False
    ranges: list[Inner] = []
    tags: Annotated[list[str], Field(max_length=2)] = []
    labels: dict[str, int] = {}
    port: int | None = None
    ratio: Annotated[float, Field(gt=0)] = 1.0

    @field_validator("name")
    @classmethod
    def _lower(cls, name: str) -> str:
        if name != name.lower():
            raise ValueError("Write it in lower case")
        return name


CASES: list[tuple[dict[str, Any], str, str]] = [
    ({"cap": 0}, "/cap", "cap must be at least 1"),
    ({"cap": 1001}, "/cap", "cap must be at most 1000"),
    ({"cap": "many"}, "/cap", "cap must be a whole number or 'auto'"),
    ({"cap": 1.5}, "/cap", "cap must be a whole number, without a fraction"),
    ({"cap": None}, "/cap", "cap must be a whole number or 'auto'"),
    ({"kind": "c"}, "/kind", "kind must be 'a' or 'b'"),
    ({"on": "perhaps"}, "/on", "on must be true or false"),
    ({"name": 7}, "/name", "name must be text"),
    ({"name": "UPPER"}, "/name", "name: write it in lower case"),
    ({"ranges": [{"first": "1"}, {}]}, "/ranges/1/first", "ranges/1/first is missing"),
    ({"ranges": [{"first": ""}]}, "/ranges/0/first", "ranges/0/first must not be empty"),
    ({"ranges": [{"first": "12345"}]}, "/ranges/0/first", "ranges/0/first must have at most 4 characters"),
    ({"ranges": 7}, "/ranges", "ranges must be a list"),
    ({"ranges": [7]}, "/ranges/0", "ranges/0 must be an object"),
    ({"tags": ["a", "b", "c"]}, "/tags", "tags must have at most 2 items"),
    ({"labels": {"int": "x"}}, "/labels/int", "labels/int must be a whole number"),
    ({"port": "ssh"}, "/port", "port must be a whole number"),
    ({"ratio": 0}, "/ratio", "ratio must be more than 0.0"),
    ({"a/b~c": 1}, "/a~1b~0c", "a/b~c: there is no such field here; see /api/v2/docs for those there are"),
]


@pytest.mark.parametrize(("body", "pointer", "detail"), CASES, ids=[detail for _, _, detail in CASES])
async def test_what_is_wrong_is_said_once_and_in_words(body: dict[str, Any], pointer: str, detail: str) -> None:
    app = FastAPI()

    @app.put("/body")
    async def put(body: Body) -> None: ...

    install(app)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://server") as api:
        problem = (await api.put("/body", json=body)).json()
    assert problem["errors"] == [{"detail": detail, "pointer": pointer}]
    assert (problem["detail"], problem["pointer"]) == (detail, pointer)


def test_a_document_that_a_patch_made_is_told_of_in_the_same_words() -> None:
    with pytest.raises(ValidationError) as wrong:
        CapIn.model_validate({"cap": 0})
    faults = faults_in_document(wrong.value.errors(), {"cap": 0})
    assert [(fault.pointer, fault.detail) for fault in faults] == [("/cap", "cap must be at least 1")]


SCHEMAS: list[tuple[dict[str, Any], Any, str, str]] = [
    ({"type": "integer"}, "x", "", "must be a whole number"),
    ({"type": ["integer", "null"]}, "x", "", "must be a whole number or null"),
    ({"minimum": 1}, 0, "", "must be at least 1"),
    ({"exclusiveMaximum": 5}, 5, "", "must be less than 5"),
    ({"enum": ["a", 2, None]}, "b", "", "must be 'a', 2 or null"),
    ({"const": True}, False, "", "must be true"),
    ({"minLength": 1}, "", "", "must not be empty"),
    ({"minItems": 2}, [], "", "must have at least 2 items"),
    ({"maxItems": 1}, [1, 2], "", "must have at most 1 items"),
    ({"pattern": "^a{2}$"}, "b", "", "must match the pattern ^a{2}$"),
    ({"required": ["a", "b"]}, {"b": 1}, "", "lacks 'a'"),
    ({"additionalProperties": False}, {"hunter2": 1}, "", "has an entry that is not known here"),
    ({"items": {"properties": {"a/b": {"type": "string"}}}}, [{"a/b": 1}], "/0/a~1b", "0/a/b must be text"),
]


@pytest.mark.parametrize(("schema", "value", "pointer", "says"), SCHEMAS, ids=[says for *_, says in SCHEMAS])
def test_a_value_that_does_not_fit_its_attrib_is_told_of_in_words(
    schema: dict[str, Any], value: Any, pointer: str, says: str
) -> None:
    with pytest.raises(Invalid) as wrong:
        check_value(Attrib("x", "test", ("x",), schema=schema, secret=True), value)
    assert wrong.value.message in (f"Attrib 'x' {says}.", f"Attrib 'x': {says}.")
    assert wrong.value.pointer == pointer
