"""The record of what people were refused, like that of what they did; bounded, for programs that try in a loop."""

from fastapi import Request

from rackwright.api.auth.limits import Bucket
from rackwright.api.context import Server
from rackwright.domain.foreign import storable_text
from rackwright.domain.people import Principal
from rackwright.store.events.outbox import emit


async def record_refusal(request: Request, reason: str) -> None:
    """Emit an event for a 403, if it is known who asked."""
    principal: Principal | None = getattr(request.state, "principal", None)
    bucket: Bucket = request.app.state.refusals
    if principal is None or not bucket.take(principal.name):
        return
    server: Server = request.app.state.server
    data = {"method": request.method, "path": storable_text(request.url.path[:200]), "reason": storable_text(reason)}
    await server.store.change(lambda session: emit(session, "permission.refused", data=data), actor=principal.name)
