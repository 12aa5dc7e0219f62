"""One pass of the annealer, by hand: claim what is runnable, let the jigs do it, settle what became of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from rackwright.domain.runs import Answer, Outcome, Run
from rackwright.jigs.base import Jig
from rackwright.store.runs import Claimant, Finished, claim, settle
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
    store: Store, jigs: Mapping[str, Jig], claimant: Claimant, cap: int, actor: str, only: int | None = None
) -> StepReport:
    """Run one pass, or just noderole `only`. What fails is settled as failed; nothing is left in TRANSITION."""
    claimed = await store.change(lambda session: claim(session, claimant, cap, only), actor=actor)
    ran: list[Stepped] = []
    for run in claimed.started:
        outcome = await jigs[run.kind].run(run, lambda _: None)
        await store.change(partial(settle, finished=[finished(run, outcome)]), actor=actor)
        ran.append(Stepped(run, outcome))
    return StepReport(ran, claimed.unchanged)


def finished(run: Run, outcome: Outcome) -> Finished:
    """What the store is told of a run."""
    return Finished(
        run.id,
        ok=outcome.answer is Answer.SUCCEEDED,
        error=outcome.error,
        wall=outcome.wall,
        accepted=outcome.answer is Answer.ACCEPTED,
    )
