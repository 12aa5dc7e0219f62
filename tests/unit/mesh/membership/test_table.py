"""The member table: the order of probing, samples and digests."""

import random
from collections import Counter

import pytest

from rackwright.mesh.membership.member import Entry, MemberRecord, State
from rackwright.mesh.membership.member_table import MemberTable, SharedBase, is_alive


def _entry(name: str, state: State = State.ALIVE, incarnation: int = 0) -> Entry:
    return Entry(MemberRecord(name, "h:1", incarnation), state, 0.0)


def _round(table: MemberTable, rng: random.Random) -> list[str]:
    names = []
    while (name := table.next_in_round(rng)) is not None:
        names.append(name)
    return names


@pytest.fixture(params=["own", "shared"])
def table(request: pytest.FixtureRequest) -> MemberTable:
    entries = [_entry(f"m{number}") for number in range(20)]
    if request.param == "shared":
        return MemberTable(SharedBase(entries))
    table = MemberTable()
    for entry in entries:
        table.put(entry)
    return table


def test_a_round_visits_everyone_once_in_another_order_each_time(table: MemberTable) -> None:
    rng = random.Random(1)
    rounds = [_round(table, rng) for _ in range(3)]
    assert all(sorted(names) == sorted(f"m{number}" for number in range(20)) for names in rounds)
    assert rounds[0] != rounds[1] != rounds[2]


def test_every_place_in_a_round_is_as_likely_as_another() -> None:
    table = MemberTable(SharedBase(_entry(f"m{number}") for number in range(5)))
    rng = random.Random(3)
    positions = Counter(_round(table, rng).index("m0") for _ in range(2000))
    assert all(300 < positions[position] < 500 for position in range(5))


def test_a_member_that_joins_in_mid_round_is_still_visited_in_it(table: MemberTable) -> None:
    rng = random.Random(2)
    for _ in range(10):
        table.next_in_round(rng)
    table.put(_entry("late"))
    assert "late" in _round(table, rng)


def test_a_dropped_member_that_returns_is_visited_once(table: MemberTable) -> None:
    table.put(_entry("late"))
    table.drop("late")
    table.put(_entry("late"))
    assert Counter(_round(table, random.Random(1)))["late"] == 1
    table.drop("late")
    _round(table, random.Random(1))
    assert table.get("late") is None
    assert "late" not in _round(table, random.Random(1))


def test_live_and_gone_are_counted_through_every_change(table: MemberTable) -> None:
    table.put(_entry("m1", State.SUSPECT))
    table.put(_entry("m2", State.DEAD))
    table.put(_entry("m3", State.LEFT))
    assert (table.live, set(table.gone), len(table)) == (18, {"m2", "m3"}, 20)
    table.drop("m2")
    table.put(_entry("m3", State.ALIVE, 1))
    assert (table.live, set(table.gone), len(table)) == (19, set(), 19)
    assert {entry.name for entry in table} == {f"m{number}" for number in range(20)} - {"m2"}


def test_a_sample_holds_different_fitting_members() -> None:
    table = MemberTable(
        SharedBase(_entry(f"m{number}", State.ALIVE if number < 4 else State.DEAD) for number in range(200))
    )
    rng = random.Random(1)
    for _ in range(50):
        chosen = table.sample(3, rng, is_alive)
        assert len({entry.name for entry in chosen}) == 3
        assert all(entry.state is State.ALIVE for entry in chosen)
    assert len(table.sample(9, rng, is_alive)) == 4


def test_equal_tables_have_equal_digests_however_they_came_to_be() -> None:
    names = [f"m{number}" for number in range(50)]
    forwards, backwards = MemberTable(), MemberTable(SharedBase(_entry(name) for name in names))
    for name in reversed(names):
        forwards.put(_entry(name, State.SUSPECT))
        forwards.put(_entry(name))
    assert forwards.digests() == backwards.digests()
    backwards.put(_entry("m7", State.DEAD))
    assert forwards.digests() != backwards.digests()
    forwards.put(_entry("m7", State.DEAD))
    forwards.drop("m7")  # forgotten here, remembered there: still no difference about who lives
    assert forwards.digests() == backwards.digests()


def test_buckets_hold_everyone_once(table: MemberTable) -> None:
    table.put(_entry("late"))
    names = Counter(entry.name for bucket in range(64) for entry in table.in_buckets(1 << bucket))
    assert names == Counter([*(f"m{number}" for number in range(20)), "late"])
