"""How a reason for waiting is shown, wherever one is."""

from pydantic import BaseModel

from rackwright.domain.why import Reason


class ReasonOut(BaseModel):
    """One link of the chain from a noderole to what a person can do something about."""

    node_role_id: int
    title: str
    state: str
    cause: str
    text: str
    remedy: str

    @classmethod
    def of(cls, reason: Reason) -> "ReasonOut":
        return cls(
            node_role_id=reason.node_role_id,
            title=reason.title,
            state=reason.state.label,
            cause=reason.cause,
            text=reason.text,
            remedy=reason.remedy,
        )
