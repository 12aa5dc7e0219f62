"""Types of values that come in: names, MACs and UUIDs, checked and brought into one form; ids within their range."""

from collections.abc import Callable
from typing import Annotated

from fastapi import Path
from pydantic import AfterValidator, Field, JsonValue

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.errors import Invalid
from rackwright.domain.names import check_mac, check_name, check_node_name, check_uuid
from rackwright.domain.sealed import masked

LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
JsonMap = dict[str, JsonValue]


def _as_validator(check: Callable[[str], str]) -> Callable[[str], str]:
    """Return the domain's own check as pydantic wants it: then a refusal points to the value in the body."""

    def checked(value: str) -> str:
        try:
            return check(value)
        except Invalid as error:
            raise ValueError(error.message) from None

    return checked


NodeName = Annotated[
    str,
    AfterValidator(_as_validator(check_node_name)),
    Field(max_length=253, json_schema_extra={"pattern": rf"^{LABEL}(\.{LABEL})*\.[a-z][a-z0-9]{{0,20}}$"}),
]
Name = Annotated[
    str,
    AfterValidator(_as_validator(lambda name: check_name("thing", name))),
    Field(max_length=63, json_schema_extra={"pattern": "^[a-z]([a-z0-9_.-]{0,61}[a-z0-9])?$"}),
]
Mac = Annotated[
    str,
    AfterValidator(_as_validator(check_mac)),
    Field(max_length=40, json_schema_extra={"pattern": "^([0-9a-f]{2}:){5}[0-9a-f]{2}$"}),
]
Uuid = Annotated[
    str, AfterValidator(_as_validator(check_uuid)), Field(max_length=64, json_schema_extra={"format": "uuid"})
]


def mask_secrets(values: JsonObject) -> JsonObject:
    """Return data as people may see it: with its secrets masked."""
    return {key: masked(value) for key, value in values.items()} if values else values


Id = Annotated[int, Path(ge=1, le=2**63 - 1)]
Key = Annotated[str, Path(min_length=1, max_length=300, description="Its name or its id.")]
Line = Annotated[str, Field(max_length=1000)]
