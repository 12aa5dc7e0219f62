"""An event as the API gives it to clients: in pages, in streams, and in the bodies of webhooks."""

from datetime import datetime

from pydantic import BaseModel, JsonValue

from rackwright.store.events.outbox import Event


class EventOut(BaseModel):
    cursor: str
    kind: str
    subject_id: int | None
    node_id: int | None
    deployment_id: int | None
    data: JsonValue
    actor: str
    trace: str
    at: datetime

    @classmethod
    def of(cls, event: Event) -> "EventOut":
        return cls(
            cursor=str(event.cursor),
            kind=event.kind,
            subject_id=event.subject_id,
            node_id=event.node_id,
            deployment_id=event.deployment_id,
            data=event.data,
            actor=event.actor,
            trace=event.trace,
            at=event.at,
        )
