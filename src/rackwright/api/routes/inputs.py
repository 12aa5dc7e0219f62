"""/api/v2/node_roles/{id}/inputs: the attribs that a noderole takes from its node and other noderoles."""

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field, JsonValue

from rackwright.api.context import ScopedReader
from rackwright.api.http.answers import answer_list
from rackwright.api.http.types import Id
from rackwright.api.routes.attribs import mask_value
from rackwright.store.graph.inputs import Input, read_inputs
from rackwright.store.graph.noderole_views import get_noderole_view

router = APIRouter(prefix="/node_roles", tags=["node_roles"])


class InputOut(BaseModel):
    """An attrib that a noderole wants of its node or of a noderole it stands on, there or on another node."""

    attrib: str = Field(examples=["ntp-servers"])
    description: str
    node: str | None = Field(description="The node it is taken from; null: nobody answers for it.")
    node_role_id: int | None = Field(description="The noderole it is taken from; null: the node itself, or nobody.")
    role: str | None = Field(description="The role of that noderole.", examples=["ntp-server"])
    elsewhere: bool = Field(description="It comes from another node.")
    value: JsonValue = Field(description="Null if nothing says what it is, see `source`. Secrets are masked.")
    source: str | None = Field(description="The layer there that says it. Null: there is none.", examples=["user"])
    secret: bool
    overridden: bool = Field(
        description="It is handed something else: what its own node says at that place counts more."
    )

    @classmethod
    def of(cls, input: Input, node: str) -> "InputOut":
        value, noderole = input.value, input.noderole
        return cls(
            attrib=value.attrib.name,
            description=value.attrib.description,
            node=input.node,
            node_role_id=None if noderole is None else noderole.id,
            role=None if noderole is None else noderole.role,
            elsewhere=input.node not in (None, node),
            value=mask_value(value, value.value if value.has_value else None),
            source=value.source,
            secret=value.attrib.secret,
            overridden=input.overridden,
        )


@router.get("/{id}/inputs", response_model=list[InputOut])
async def get_node_role_inputs(caller: ScopedReader, id: Id) -> Response:
    """Every attrib that its role wants, with who answers for it and what that is now."""
    async with caller.read() as (session, visible):
        record = await get_noderole_view(session, id, visible)
        inputs = await read_inputs(session, record, visible)
    return answer_list([InputOut.of(input, record.node) for input in inputs])
