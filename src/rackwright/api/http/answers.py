"""Responses with one object or a list: the JSON bytes, the ETag, `?fields=`, and one envelope for every list."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Generic, TypeVar

from fastapi import Depends, Query, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json

from rackwright.api.http.etags import quote_etag
from rackwright.domain.errors import Invalid

T = TypeVar("T")

MEDIA_TYPE = "application/json"


class Resource(BaseModel):
    """An object of the API."""

    model_config = ConfigDict(frozen=True)

    etag: str = Field(
        description="The version of what people decide about it: send it back as If-Match with a change.",
        examples=["4bc64b1ac1e87e0e4d6b2a66"],
    )


class Page(BaseModel, Generic[T]):
    """Some of a list. `next` leads to what follows: send it as `cursor`."""

    items: list[T]
    next: str | None = Field(None, description="The cursor of the next page; null: this is the last.")


async def _fields(
    fields: Annotated[
        str | None,
        Query(description="Only these properties of each object, separated by commas.", examples=["id,name,state"]),
    ] = None,
) -> frozenset[str] | None:
    return None if fields is None else frozenset(name.strip() for name in fields.split(","))


Fields = Annotated[frozenset[str] | None, Depends(_fields)]


def _known_fields(fields: frozenset[str] | None, model: type[BaseModel]) -> set[str] | None:
    """Return the fields that were asked for, or refuse one that the model does not have."""
    if fields is None:
        return None
    unknown = sorted(fields - model.model_fields.keys())
    if unknown:
        names = ", ".join(model.model_fields)
        raise Invalid(f"There is no property {unknown[0][:80]!r} to choose with `fields`. There are: {names}.")
    return set(fields)


def answer(
    resource: BaseModel | None,
    status: int = 200,
    fields: frozenset[str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return the response with one object; with None, an empty one (204)."""
    if resource is None:
        return Response(status_code=204, headers=headers)
    body = resource.model_dump_json(include=_known_fields(fields, type(resource)))
    etag = {"ETag": quote_etag(resource.etag)} if isinstance(resource, Resource) else {}
    return Response(body, status, {**etag, **(headers or {})}, MEDIA_TYPE)


def answer_page(
    model: type[BaseModel],
    items: Sequence[BaseModel | Mapping[str, object]],
    next: str | None,
    fields: frozenset[str] | None,
) -> Response:
    """Return the response with a page of objects, or of the plain values that `model` describes.

    Long lists are not made into objects first, which would cost more than to write them.
    """
    include = _known_fields(fields, model)
    if include is not None:
        mappings = (item.model_dump() if isinstance(item, BaseModel) else item for item in items)
        items = [{name: value for name, value in item.items() if name in include} for item in mappings]
    return Response(to_json({"items": items, "next": next}), media_type=MEDIA_TYPE)


def answer_list(items: Sequence[BaseModel]) -> Response:
    """Return the response with a short list that has no pages, such as a chain of reasons."""
    return Response(f"[{','.join(item.model_dump_json() for item in items)}]", media_type=MEDIA_TYPE)
