"""One pass of the annealer, by hand: claim what is runnable, let the jigs do it, settle what became of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from rackwright.domain.runs import Answer, Outcome, Run
from rackwright.jigs.base import Jig
from rackwright.store.runs import Finished, claim, settle
from rackwright.store.session import Store


@dataclass(frozen=True)
class Stepped:
    """What one run of a pass came to."""

    run: Run
    outcome: Outcome


@dataclass(frozen=True)
class StepReport:
    ran: list[Stepped]
    unchanged: list[int]


async def step(
    store: Store, jigs: Mapping[str, Jig], worker: str, limit: int, actor: str, only: int | None = None
) -> StepReport:
    """Run one pass, or just noderole `only`. What fails is settled as failed; nothing is left in TRANSITION."""
    claimed = await store.change(lambda session: claim(session, worker, limit, only), actor=actor)
    ran: list[Stepped] = []
    for run in claimed.started:
        outcome = await jigs[run.kind].run(run, lambda _: None)
        finished = Finished(run.id, run.token, outcome.answer is Answer.SUCCEEDED, outcome.error, outcome.wall)
        await store.change(partial(settle, finished=[finished]), actor=actor)
        ran.append(Stepped(run, outcome))
    return StepReport(ran, claimed.unchanged)
