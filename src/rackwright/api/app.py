"""The application: its routes, and how errors become problem details."""

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from rackwright import __version__
from rackwright.api import anneal, deployments, hook_calls, machines, node_roles, nodes
from rackwright.api.context import Server
from rackwright.api.limits import Bucket
from rackwright.domain.errors import Invalid, RackwrightError

PREFIX = "/api/v2"


def create_app(server: Server) -> FastAPI:
    app = FastAPI(
        title="Rackwright", version=__version__, openapi_url=f"{PREFIX}/openapi.json", docs_url=f"{PREFIX}/docs"
    )
    app.state.server = server
    app.state.public_bucket = Bucket(rate=50, burst=500)
    for module in (machines, nodes, deployments, node_roles, anneal, hook_calls):
        app.include_router(module.router, prefix=PREFIX)
    app.include_router(machines.boot_router)
    app.add_exception_handler(RackwrightError, _problem)
    app.get("/healthz", include_in_schema=False)(healthz)
    return app


async def healthz() -> dict[str, str]:
    """The process is there and answers. Nothing else is said to a stranger."""
    return {"status": "ok"}


async def _problem(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RackwrightError)
    body: dict[str, object] = {
        "type": f"urn:rackwright:problem:{error.type}",
        "title": error.type.replace("-", " ").capitalize(),
        "status": error.status,
        "detail": error.message,
    }
    if isinstance(error, Invalid) and error.pointer:
        body["pointer"] = error.pointer
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
    return JSONResponse(body, error.status, headers, media_type="application/problem+json")
