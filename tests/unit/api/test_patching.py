"""Patches of documents that hold secrets: the sealed value stays where it is, or goes."""

from typing import Any

import pytest
from pydantic import BaseModel, JsonValue

from rackwright.api.bodies import JSON_PATCH, MERGE_PATCH
from rackwright.api.patching import Patch
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
