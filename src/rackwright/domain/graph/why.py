"""Why a noderole waits: the reason, its remedy, and the noderole to look at next.

From one reason to the next, the store follows the chain down to something a person can act on. Pure.
"""

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
    """How far the install of a node has come, and what it waits for."""

    stage: Stage
    lagging: tuple[str, ...] = ()
    """Boot providers that do not serve the installer yet."""
    progress: str = ""


@dataclass(frozen=True)
class Parent:
    """A parent of a noderole that waits."""

    id: int
    title: str | None
    """None: the person who asks may not see it."""
    state: NodeRoleState


@dataclass(frozen=True)
class Situation:
    """Everything that can keep one noderole from running."""

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
    """The run that holds the slot of its node."""
    slot_title: str = ""
    run_id: int | None = None
    pending_hooks: int = 0
    ahead: str = ""
    """The title of the noderole that would run on its slot before it."""
    cap_full: bool = False
    install: OpenInstall | None = None
    parents: tuple[Parent, ...] = ()
    """The parents that are not ACTIVE."""

    @property
    def title(self) -> str:
        return f"{self.role} on {self.node}"


@dataclass(frozen=True)
class Reason:
    """One link of the chain: which noderole waits, for what, and what to do about it."""

    node_role_id: int
    title: str
    state: NodeRoleState
    cause: Cause
    text: str
    remedy: str = ""
    next_id: int | None = None
    """The noderole to look at next."""


class MakeReason(Protocol):
    """Makes the reason of the noderole that is being explained."""

    def __call__(self, cause: Cause, text: str, remedy: str = "", next_id: int | None = None) -> Reason: ...


def explain_wait(situation: Situation) -> Reason:
    """Return why one noderole is in its state."""

    def reason(cause: Cause, text: str, remedy: str = "", next_id: int | None = None) -> Reason:
        return Reason(situation.id, situation.title, situation.state, cause, text, remedy, next_id)

    if situation.state is ACTIVE:
        return reason(Cause.NOTHING, "It is active and waits for nothing.")
    if situation.state is PROPOSED:
        return reason(
            Cause.COMMIT,
            f"It is only proposed in deployment {situation.deployment!r}.",
            f"rackwright deployment commit {situation.deployment}",
        )
    if situation.state is ERROR:
        return reason(
            Cause.FAILED,
            f"Its last run failed: {situation.error or 'without a word'}",
            f"See rackwright noderole log {situation.id}; mend the cause, then: "
            f"rackwright noderole retry {situation.id}",
        )
    if situation.state is BLOCKED:
        parent = max(situation.parents, key=lambda parent: (parent.state is ERROR, -parent.id))
        verb = "failed" if parent.state is ERROR else f"is {parent.state.label}"
        if parent.title is None:
            outside = f"It stands on a noderole of a deployment that you may not see, which {verb}."
            return reason(Cause.PARENT, outside, "Ask somebody who may see the whole system")
        return reason(Cause.PARENT, f"It stands on {parent.title}, which {verb}.", next_id=parent.id)
    if situation.state is TODO:
        return _explain_todo(situation, reason)
    if situation.install is not None:
        return _explain_install(situation, situation.install, reason)
    return reason(Cause.RUN, f"It runs now: run {situation.run_id}.", f"rackwright run log {situation.run_id}")


def _explain_install(situation: Situation, install: OpenInstall, reason: MakeReason) -> Reason:
    """Explain TRANSITION without a worker: the noderole waits for its install, whose stage says for what."""
    if install.stage is Stage.PUBLISHING and install.lagging:
        return reason(
            Cause.BOOT_PROVIDER,
            f"{situation.node} is not rebooted before every boot provider serves its installer. Missing: "
            f"{', '.join(install.lagging)}.",
            "See why it does not: rackwright why NODEROLE, or its log",
        )
    progress = install.progress and f"; it is at {install.progress}"
    waits_for = {
        Stage.WAITING: "as many installs as may run at once are under way",
        Stage.PUBLISHING: "every boot provider serves its installer; the next look reboots it",
        Stage.REBOOTING: f"{situation.node} is told to boot from the network and must fetch its installer",
        Stage.INSTALLING: f"the installer on {situation.node} must report{progress}",
        Stage.BOOTING: f"{situation.node} must come up from its own disk",
        Stage.PROBING: f"the server looks at the installed {situation.node}",
    }
    remedy = f"If it takes too long, cancel it: rackwright run cancel {situation.run_id}"
    if install.stage is Stage.WAITING:
        remedy = "Wait, or raise the setting max_installs"
    return reason(
        Cause.INSTALL, f"Its install is {install.stage}: {waits_for.get(install.stage, 'it is over')}.", remedy
    )


def _explain_todo(situation: Situation, reason: MakeReason) -> Reason:
    """Explain TODO: all parents are ACTIVE, so it is the deployment, the node, the jig, the slot or the cap."""
    if situation.held:
        return reason(
            Cause.HOLD,
            f"Deployment {situation.deployment!r} was recalled and is held.",
            f"Commit or discard its proposal: rackwright deployment commit {situation.deployment}",
        )
    if not situation.available:
        return reason(
            Cause.NODE_UNAVAILABLE,
            f"Node {situation.node} is not available to the annealer.",
            f"Accept it: rackwright node accept {situation.node}",
        )
    if not situation.alive:
        return reason(
            Cause.NODE_DOWN,
            f"Node {situation.node} is not alive.",
            f"Power it on: rackwright node power {situation.node} on",
        )
    if not situation.jig_active:
        return reason(
            Cause.JIG, f"Its jig {situation.jig!r} is not active.", f"rackwright jig activate {situation.jig}"
        )
    if situation.slot_run is not None:
        return reason(
            Cause.SLOT, f"Run {situation.slot_run} ({situation.slot_title}) is on {situation.node}; one at a time."
        )
    if situation.pending_hooks:
        return reason(
            Cause.HOOKS,
            f"{situation.pending_hooks} hooks of {situation.node} or of what it stands on have not run yet.",
        )
    if situation.ahead:
        return reason(Cause.TURN, f"{situation.ahead} comes first on {situation.node}.")
    if situation.cap_full:
        return reason(
            Cause.CAP, "As many runs as the cap allows are under way.", "Raise it: rackwright anneal cap NUMBER"
        )
    return reason(
        Cause.TURN,
        "It can run: the next pass starts it.",
        "If no annealer is running, do a pass by hand: rackwright anneal step",
    )
