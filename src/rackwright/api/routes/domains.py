"""/api/v2/domains: the DNS domains below which the names of nodes are served, and which deployment each belongs to."""

from typing import Annotated

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, ConfigDict, Field

from rackwright.api.context import Administrator, ScopedReader
from rackwright.api.http.answers import Fields, Page, Resource, answer
from rackwright.api.http.etags import make_etag
from rackwright.api.http.paging import ListQuery, list_parameters, read_page
from rackwright.api.http.types import Key
from rackwright.api.http.writing import EditTerms, PostTerms, write
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.graph.deployments import SYSTEM, get_deployment
from rackwright.store.networks import domains as stored
from rackwright.store.networks.domains import DOMAINS, DomainRecord, select_domains

router = APIRouter(prefix="/domains", tags=["domains"])


class DomainIn(BaseModel):
    """A domain to serve."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=253, examples=["rack.example"])
    deployment: str | None = Field(
        None, max_length=63, description="Whose nodes, with those below it; those of all deployments if none."
    )


class DomainOut(Resource):
    """Names below it are served by DNS, of nodes in its deployment and those below that."""

    id: int
    name: str = Field(examples=["rack.example"])
    deployment: str = Field(examples=["web"])

    @classmethod
    def of(cls, domain: DomainRecord) -> "DomainOut":
        return cls(
            etag=make_etag(domain.id, domain.name, domain.deployment_id),
            id=domain.id,
            name=domain.name,
            deployment=domain.deployment,
        )


@router.get("", response_model=Page[DomainOut])
async def list_domains(
    caller: ScopedReader, query: Annotated[ListQuery, Depends(list_parameters(DOMAINS))]
) -> Response:
    """All domains, or those that fit."""
    async with caller.read() as (session, visible):
        return await read_page(session, visible, query, select_domains, DomainOut, DomainOut.of)


@router.post("", status_code=201, response_model=DomainOut)
async def create_domain(caller: Administrator, terms: PostTerms, body: DomainIn) -> Response:
    """Serve the names of a deployment's nodes below this domain."""

    async def work(session: Session) -> DomainOut:
        owner = await get_deployment(session, body.deployment or SYSTEM, EVERYTHING)
        return DomainOut.of(await stored.create_domain(session, body.name, owner))

    return await write(caller, terms, work, status=201, location=lambda _: f"/api/v2/domains/{body.name.lower()}")


@router.get("/{domain}", response_model=DomainOut)
async def get_domain(caller: ScopedReader, domain: Key, fields: Fields) -> Response:
    """One domain."""
    async with caller.read() as (session, visible):
        return answer(DomainOut.of(await stored.get_domain(session, domain, visible)), fields=fields)


@router.delete("/{domain}", status_code=204)
async def delete_domain(caller: Administrator, terms: EditTerms, domain: Key) -> Response:
    """Serve it no more. Nodes keep their names."""

    async def work(session: Session) -> None:
        record = await stored.get_domain(session, domain, EVERYTHING)
        terms.check(DomainOut.of(record), f"domain {record.name}")
        await stored.delete_domain(session, record)

    return await write(caller, terms, work)
