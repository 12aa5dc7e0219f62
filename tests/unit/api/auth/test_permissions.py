"""Whether a request checked its permission: what `Permissions` knows of that, and what it refuses."""

from typing import cast

import pytest

from rackwright.api.auth.authentication import Forbidden
from rackwright.api.auth.permissions import Permissions, RequestVisibility
from rackwright.domain.people import Principal, UserRole
from rackwright.store.db.session import Session
from rackwright.store.db.visibility import EVERYTHING

SEEN = "d.id = ANY (:sees)"


def operator_of_a_part() -> Permissions:
    return Permissions(Principal("grace", UserRole.NONE, grants={1: UserRole.OPERATOR}))


def transaction() -> Session:
    return cast(Session, object())


def test_what_may_be_seen_is_a_condition_and_its_values() -> None:
    part = RequestVisibility([1, 2])
    assert (part.condition(SEEN), part.values) == (SEEN, {"sees": [1, 2]})
    assert RequestVisibility([]).condition(SEEN) == SEEN, "who may see nothing is not shown everything"
    assert (EVERYTHING.condition(SEEN), EVERYTHING.values) == ("true", {})


def test_an_answer_that_no_query_was_kept_for_is_refused() -> None:
    part = RequestVisibility([1])
    with pytest.raises(Forbidden):
        operator_of_a_part().check_visibility_used(part)
    assert part.values, "to take the values along is not enough"
    with pytest.raises(Forbidden):
        operator_of_a_part().check_visibility_used(part)
    part.condition(SEEN)
    operator_of_a_part().check_visibility_used(part)


def test_an_answer_that_is_everybodys_or_kept_otherwise_is_given() -> None:
    everybodys, filtered = RequestVisibility([1]), RequestVisibility([1])
    everybodys.mark_public()
    assert filtered.deployments() == [1]
    for visible in (everybodys, filtered):
        operator_of_a_part().check_visibility_used(visible)


def test_who_may_read_everything_need_not_be_limited() -> None:
    Permissions(Principal("grace", UserRole.VIEWER)).check_visibility_used(RequestVisibility(None))


def test_a_change_that_asked_nothing_is_refused() -> None:
    with pytest.raises(Forbidden):
        operator_of_a_part().check_authorized(transaction())
    Permissions(Principal("grace", UserRole.OPERATOR)).check_authorized(transaction())


def test_what_was_asked_in_one_transaction_does_not_count_for_the_next() -> None:
    caller, first, second = operator_of_a_part(), transaction(), transaction()
    caller.mark_own_change(first)
    caller.check_authorized(first)
    with pytest.raises(Forbidden):
        caller.check_authorized(second)


async def test_who_is_refused_where_the_change_is_made_learns_of_it_at_once() -> None:
    caller = operator_of_a_part()
    with pytest.raises(Forbidden, match="for the whole system"):
        await caller.authorize(transaction(), None)
