"""What a transaction knows of hooks: the verdicts of hooks that may refuse its change, and the calls that led to it.

The caller of the transaction sets it. `store/hooks/hook_calls.py`, which asks hooks and queues calls, reads it.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.hooks import Effect

if TYPE_CHECKING:
    from rackwright.store.db.session import Session


@dataclass(frozen=True)
class PendingCall:
    """A call of one hook that is still to be made: to ask for its verdict, or to tell it of a change."""

    role: str
    hook: str
    subject: str
    subject_id: int
    node_id: int | None
    view: JsonObject

    @property
    def key(self) -> str:
        """A digest of the role, the hook and the view: a verdict holds only for what the hook was shown."""
        question = json.dumps([self.role, self.hook, self.view], sort_keys=True)
        return hashlib.sha256(question.encode()).hexdigest()


@dataclass
class HookVerdicts:
    """The verdicts of hooks on a change, collected before it is made."""

    apply: Callable[["Session", PendingCall, Sequence[Effect]], Awaitable[None]]
    effects_by_key: Mapping[str, Sequence[Effect]] = field(default_factory=dict)
    """By `PendingCall.key`: the effects that the hook returned."""
    missing: list[PendingCall] = field(default_factory=list)
    """Calls of hooks that were not asked yet: without their verdicts the change must not be made."""


@dataclass
class HookContext:
    """The verdicts on one transaction, and the chain of hook calls that led to it."""

    verdicts: HookVerdicts | None = None
    """The verdicts of hooks that may refuse this change; None: it cannot be refused, hooks are told afterwards."""
    chain: Mapping[str, int] = field(default_factory=dict)
    """How often each role was called in the chain of hooks that led to this change; empty: no hook led to it."""
    oscillating: list[tuple[int, str, str, str]] = field(default_factory=list)
    """(node id, role, hook, error) of calls that are not made because that chain is too long."""
