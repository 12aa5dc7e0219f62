"""What who runs a transaction says of hooks: the verdicts of those that may refuse it, and the calls that led to it.

The transaction hands it on to where hooks are asked and told of what changes, which is in `store/hooks/hook_calls.py`.
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
class Call:
    """One hook to be asked for its verdict."""

    role: str
    hook: str
    subject: str
    subject_id: int
    node_id: int | None
    view: JsonObject

    @property
    def key(self) -> str:
        """The same for the same question: a verdict holds for just what the hook was shown."""
        asked = json.dumps([self.role, self.hook, self.view], sort_keys=True)
        return hashlib.sha256(asked.encode()).hexdigest()


@dataclass
class Verdicts:
    """What hooks said of a change before it is made."""

    apply: Callable[["Session", Call, Sequence[Effect]], Awaitable[None]]
    given: Mapping[str, Sequence[Effect]] = field(default_factory=dict)
    missing: list[Call] = field(default_factory=list)
    """Hooks that were not asked: without their verdicts the change must not be made."""


@dataclass
class HookContext:
    """What one transaction knows of hooks."""

    verdicts: Verdicts | None = None
    """What hooks that may refuse said of this change; None: nobody can be refused, they are told afterwards."""
    chain: Mapping[str, int] = field(default_factory=dict)
    """How often each role was called in the chain of hooks that led to this change; empty: no hook did."""
    oscillating: list[tuple[int, str, str, str]] = field(default_factory=list)
    """(node, role, hook, error) of calls that are not made because that chain is too long."""
