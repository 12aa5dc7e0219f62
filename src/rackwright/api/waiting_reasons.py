"""How a reason for waiting is shown in every answer that has one, and the cap on runs, which may be one."""

from pydantic import BaseModel

from rackwright.annealer.run_cap import AUTO, DEFAULT_CAP
from rackwright.domain.graph.why import Reason
from rackwright.store.db.session import Session
from rackwright.store.settings import read_setting


async def cap_in_force(session: Session) -> int | None:
    """Return how many runs may execute at once; None: the annealer finds that out as they run."""
    cap: int | str = await read_setting(session, "cap", DEFAULT_CAP)
    return None if cap == AUTO else int(cap)


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
