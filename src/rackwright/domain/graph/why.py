"""Why is this waiting? The chain from a noderole down to the thing a person can act on. Pure; the store asks it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from rackwright.domain.machines.install import Stage
from rackwright.domain.states import ACTIVE, BLOCKED, ERROR, PROPOSED, TODO, NodeRoleState


class Cause(StrEnum):
    """What a noderole can wait for. The value is part of the API: only append."""

    COMMIT = "commit"
    PARENT = "parent"
    FAILED = "failed"
    RUN = "run"
    HOLD = "hold"
    NODE_DOWN = "node"
    NODE_UNAVAILABLE = "unavailable"
    JIG = "jig"
    SLOT = "slot"
    CAP = "cap"
    HOOKS = "hooks"
    TURN = "turn"
    NOTHING = "nothing"
    INSTALL = "install"
    BOOT_PROVIDER = "boot-provider"


@dataclass(frozen=True)
class OpenInstall:
    """How far the install of a node has come, and what keeps it."""

    stage: Stage
    lagging: tuple[str, ...] = ()
    """Boot providers that do not serve the installer yet."""
    progress: str = ""


@dataclass(frozen=True)
class Parent:
    """What a noderole stands on."""

    id: int
    title: str | None
    """None: whoever asks may not see it."""
    state: NodeRoleState


@dataclass(frozen=True)
class Situation:
    """All that can keep one noderole from running."""

    id: int
    role: str
    node: str
    deployment: str
    state: NodeRoleState
    error: str = ""
    held: bool = False
    alive: bool = True
    available: bool = True
    jig: str = ""
    jig_active: bool = True
    slot_run: int | None = None
    """The run that holds its slot."""
    slot_title: str = ""
    run_id: int | None = None
    pending_hooks: int = 0
    ahead: str = ""
    """What would run on its slot before it."""
    cap_full: bool = False
    install: OpenInstall | None = None
    parents: tuple[Parent, ...] = ()
    """Those that are not ACTIVE."""

    @property
    def title(self) -> str:
        return f"{self.role} on {self.node}"


@dataclass(frozen=True)
class Reason:
    """One link of the chain: what waits, for what, and what to do about it."""

    node_role_id: int
    title: str
    state: NodeRoleState
    cause: Cause
    text: str
    remedy: str = ""
    next_id: int | None = None
    """The noderole to look at next."""


class MakeReason(Protocol):
    def __call__(self, cause: Cause, text: str, remedy: str = "", next_id: int | None = None) -> Reason: ...


def explain_wait(at: Situation) -> Reason:
    """Why one noderole is where it is."""

    def because(cause: Cause, text: str, remedy: str = "", next_id: int | None = None) -> Reason:
        return Reason(at.id, at.title, at.state, cause, text, remedy, next_id)

    if at.state is ACTIVE:
        return because(Cause.NOTHING, "It is active and waits for nothing.")
    if at.state is PROPOSED:
        return because(
            Cause.COMMIT,
            f"It is only proposed in deployment {at.deployment!r}.",
            f"rackwright deployment commit {at.deployment}",
        )
    if at.state is ERROR:
        return because(
            Cause.FAILED,
            f"Its last run failed: {at.error or 'without a word'}",
            f"See rackwright noderole log {at.id}; mend the cause, then: rackwright noderole retry {at.id}",
        )
    if at.state is BLOCKED:
        parent = max(at.parents, key=lambda parent: (parent.state is ERROR, -parent.id))
        verb = "failed" if parent.state is ERROR else f"is {parent.state.label}"
        if parent.title is None:
            outside = f"It stands on a noderole of a deployment that you may not see, which {verb}."
            return because(Cause.PARENT, outside, "Ask somebody who may see the whole system")
        return because(Cause.PARENT, f"It stands on {parent.title}, which {verb}.", next_id=parent.id)
    if at.state is TODO:
        return _todo(at, because)
    if at.install is not None:
        return _installing(at, at.install, because)
    return because(Cause.RUN, f"It runs now: run {at.run_id}.", f"rackwright run log {at.run_id}")


def _installing(at: Situation, open: OpenInstall, because: MakeReason) -> Reason:
    """TRANSITION, and no worker: it waits for something outside, which the stage names."""
    if open.stage is Stage.PUBLISHING and open.lagging:
        return because(
            Cause.BOOT_PROVIDER,
            f"{at.node} is not rebooted before every boot provider serves its installer. Missing: "
            f"{', '.join(open.lagging)}.",
            "See why it does not: rackwright why NODEROLE, or its log",
        )
    waits_for = {
        Stage.WAITING: "as many installs as may run at once are under way",
        Stage.PUBLISHING: "every boot provider serves its installer; the next look reboots it",
        Stage.REBOOTING: f"{at.node} is told to boot from the network and must fetch its installer",
        Stage.INSTALLING: f"the installer on {at.node} must report{open.progress and f'; it is at {open.progress}'}",
        Stage.BOOTING: f"{at.node} must come up from its own disk",
        Stage.PROBING: f"the server looks at the installed {at.node}",
    }
    remedy = f"If it takes too long, cancel it: rackwright run cancel {at.run_id}"
    if open.stage is Stage.WAITING:
        remedy = "Wait, or raise the setting max_installs"
    return because(Cause.INSTALL, f"Its install is {open.stage}: {waits_for.get(open.stage, 'it is over')}.", remedy)


def _todo(at: Situation, because: MakeReason) -> Reason:
    """TODO: all parents are ACTIVE, so it is something around it."""
    if at.held:
        return because(
            Cause.HOLD,
            f"Deployment {at.deployment!r} was recalled and is held.",
            f"Commit or discard its proposal: rackwright deployment commit {at.deployment}",
        )
    if not at.available:
        return because(
            Cause.NODE_UNAVAILABLE,
            f"Node {at.node} is not available to the annealer.",
            f"Accept it: rackwright node accept {at.node}",
        )
    if not at.alive:
        return because(
            Cause.NODE_DOWN, f"Node {at.node} is not alive.", f"Power it on: rackwright node power {at.node} on"
        )
    if not at.jig_active:
        return because(Cause.JIG, f"Its jig {at.jig!r} is not active.", f"rackwright jig activate {at.jig}")
    if at.slot_run is not None:
        return because(Cause.SLOT, f"Run {at.slot_run} ({at.slot_title}) is on {at.node}; one at a time.")
    if at.pending_hooks:
        return because(Cause.HOOKS, f"{at.pending_hooks} hooks of {at.node} or of what it stands on have not run yet.")
    if at.ahead:
        return because(Cause.TURN, f"{at.ahead} comes first on {at.node}.")
    if at.cap_full:
        return because(
            Cause.CAP, "As many runs as the cap allows are under way.", "Raise it: rackwright anneal cap NUMBER"
        )
    return because(
        Cause.TURN,
        "It can run: the next pass starts it.",
        "If no annealer is running, do a pass by hand: rackwright anneal step",
    )
