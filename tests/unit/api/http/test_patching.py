"""Patches of documents: a sealed value stays where it is, or goes; and no patch keeps the server busy."""

from typing import Any

import pytest
from pydantic import BaseModel, JsonValue

from rackwright.api.http.bodies import JSON_PATCH, MERGE_PATCH
from rackwright.api.http.patching import Patch
from rackwright.domain.errors import Invalid

SEALED: dict[str, JsonValue] = {"$sealed": "1:AAAA", "fingerprint": "x"}


class Document(BaseModel):
    values: dict[str, JsonValue]


def document() -> Document:
    return Document(values={"secret": SEALED, "inner": {"secret": SEALED}, "free": "text"})


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "copy", "path": "/values/free", "from": "/values/secret"},
        {"op": "move", "path": "/values/free", "from": "/values/inner"},
        {"op": "copy", "path": "/values/free", "from": "/values/inner/secret/$sealed"},
        {"op": "remove", "path": "/values/secret/fingerprint/$sealed"},
        {"op": "add", "path": "/values/$sealed", "value": "1:AAAA"},
    ],
)
def test_a_secret_is_not_carried_to_where_it_would_be_shown(operation: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        Patch(JSON_PATCH, [operation]).apply(document())


def test_a_secret_may_go_and_the_rest_may_change() -> None:
    operations: list[JsonValue] = [
        {"op": "remove", "path": "/values/inner"},
        {"op": "replace", "path": "/values/free", "value": "else"},
    ]
    assert Patch(JSON_PATCH, operations).apply(document()).values == {"secret": SEALED, "free": "else"}
    assert Patch(MERGE_PATCH, {"values": {"free": 1}}).apply(document()).values["secret"] == SEALED


def test_many_operations_on_a_large_document_do_not_copy_it_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[object] = []

    def noted(value: object, *_: object) -> object:
        copied.append(value)
        return value

    monkeypatch.setattr("jsonpatch.copy.deepcopy", noted)
    operations: list[JsonValue] = [
        {"op": "test", "path": "/values/free", "value": "text"},
        {"op": "add", "path": "/values/new", "value": 1},
        {"op": "copy", "path": "/values/again", "from": "/values/free"},
    ]
    Patch(JSON_PATCH, operations * 100).apply(document())
    assert not any(isinstance(value, dict) and "values" in value for value in copied)


def test_a_patch_that_is_applied_again_says_the_same() -> None:
    operations: list[JsonValue] = [
        {"op": "add", "path": "/values/list", "value": []},
        {"op": "add", "path": "/values/list/-", "value": 1},
    ]
    patch = Patch(JSON_PATCH, operations)
    assert patch.apply(document()) == patch.apply(document())
    assert patch.apply(document()).values["list"] == [1]


def test_copies_of_copies_fill_no_memory() -> None:
    operations: list[JsonValue] = [{"op": "copy", "path": "/values/inner/more", "from": "/values"}] * 60
    with pytest.raises(Invalid, match="larger than"):
        Patch(JSON_PATCH, operations).apply(Document(values={"inner": {}, "text": "x" * 1000}))


@pytest.mark.parametrize("kind", ["copy", "move"])
def test_values_put_into_each_other_again_and_again_are_refused_in_words(kind: str) -> None:
    into: list[JsonValue] = []
    for _ in range(333):
        into.append({"op": kind, "path": "/values/inner/more", "from": "/values/free"})
        into.append({"op": kind, "path": "/values/free", "from": "/values/inner"})
        into.append({"op": "add", "path": "/values/inner", "value": {}})
    with pytest.raises(Invalid, match=r"levels deep|larger than"):
        Patch(JSON_PATCH, into).apply(document())
