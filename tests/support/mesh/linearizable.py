"""Whether a recorded history of reads, writes and compare-and-swaps of registers could have happened one at a time.

The search of Wing and Gong with Lowe's memory of what was tried: pick an operation that may come next, see whether the
register allows it, go on, and back up where it does not. An operation whose outcome nobody knows may have happened at
any time after it began, or never.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    READ = "read"
    WRITE = "write"
    SWAP = "swap"


@dataclass(frozen=True)
class Operation:
    """`end` is infinite where the outcome is unknown. A read's `value` is what it saw; None is "no such key"."""

    key: str
    kind: Kind
    value: str | None
    start: float
    end: float = math.inf
    expected: str | None = None
    """What a swap compares with."""
    swapped: bool = True
    """Whether the swap said that it was done."""

    @property
    def known(self) -> bool:
        return self.end != math.inf


def first_problem(history: Iterable[Operation]) -> str | None:
    """What is wrong with a history, or None if it is linearizable. Keys are independent of each other."""
    by_key: dict[str, list[Operation]] = defaultdict(list)
    for operation in history:
        if operation.known or operation.kind is not Kind.READ:
            by_key[operation.key].append(operation)
    for key, operations in sorted(by_key.items()):
        if not _linearizable(operations):
            return f"the {len(operations)} operations on {key} cannot have happened one at a time"
    return None


def _apply(state: str | None, operation: Operation) -> tuple[bool, str | None]:
    """Whether the operation could have happened in this state, and the state after it."""
    if operation.kind is Kind.READ:
        return state == operation.value, state
    if operation.kind is Kind.WRITE:
        return True, operation.value
    matches = state == operation.expected
    if operation.known and operation.swapped != matches:
        return False, state
    return True, operation.value if matches else state


def _linearizable(operations: list[Operation]) -> bool:
    ordered = sorted(operations, key=lambda operation: operation.start)
    needed = sum(1 << place for place, operation in enumerate(ordered) if operation.known)
    unseen = _unseen(ordered)
    seen: set[tuple[int, str | None]] = set()
    stack: list[tuple[int, str | None]] = [(0, None)]
    while stack:
        done, state = stack.pop()
        if done & needed == needed:
            return True
        if (done, state) in seen:
            continue
        seen.add((done, state))
        stack.extend(_next(ordered, unseen, done, state))
    return False


def _unseen(ordered: list[Operation]) -> set[int]:
    """The places of writes of which nobody knows whether they happened, and whose values nobody ever met.

    One of them is as good as another that began earlier, so only the first that is left need be tried. Without this, a
    client that was long without an answer would make the search longer than anyone can wait.
    """
    met = {operation.value for operation in ordered if operation.kind is Kind.READ}
    met |= {operation.expected for operation in ordered if operation.kind is Kind.SWAP}
    return {
        place
        for place, operation in enumerate(ordered)
        if not operation.known and operation.kind is Kind.WRITE and operation.value not in met
    }


def _next(ordered: list[Operation], unseen: set[int], done: int, state: str | None) -> Iterable[tuple[int, str | None]]:
    """Every operation that may come next: one that began before the first of the others ended."""
    horizon = math.inf
    unseen_tried = False
    place = (done ^ (done + 1)).bit_length() - 1  # all before are done
    possible = []
    while place < len(ordered) and ordered[place].start <= horizon:
        if not done >> place & 1:
            horizon = min(horizon, ordered[place].end)
            if not (unseen_tried and place in unseen):
                possible.append(place)
            unseen_tried = unseen_tried or place in unseen
        place += 1
    # The one that ends first is tried first: real histories seldom need another.
    for place in sorted(possible, key=lambda place: -ordered[place].end):
        if ordered[place].start <= horizon:
            fits, after = _apply(state, ordered[place])
            if fits:
                yield done | 1 << place, after
