"""One membership machine, driven by hand: tables, who comes and goes, who may say what, and time."""

import math
import random
from dataclasses import replace

import pytest
from tests.unit.mesh.membership.swim_member import ME, Member, record_of

from rackwright.mesh.membership.member import Entry, State
from rackwright.mesh.membership.messages import (
    MAX_MESSAGE,
    Alive,
    Dead,
    Gossip,
    Message,
    Ping,
    Suspect,
    SyncDigest,
    SyncState,
    encode,
)
from rackwright.mesh.membership.swim import Send, Swim, SwimConfig

# -- tables ----------------------------------------------------------------------------------------------------------


def test_dead_in_a_peers_table_is_only_a_suspicion() -> None:
    member = Member("a", "b")
    member.hear("a", SyncState(1, False, ((State.DEAD, record_of("b")),)))
    assert member.kinds("b") == ["suspect"]


def test_left_in_a_peers_table_is_believed() -> None:
    member = Member("a", "b")
    member.hear("a", SyncState(1, False, ((State.LEFT, record_of("b")),)))
    assert member.kinds("b") == ["left"]


def test_equal_tables_are_answered_by_an_empty_page() -> None:
    member = Member("a", "b")
    same = member.digest()
    member.sent.clear()
    member.hear("a", same)
    assert member.bodies("a") == [SyncState(0, True, ())]


def test_differing_tables_exchange_only_the_buckets_that_differ() -> None:
    member = Member("a", *(f"m{number}" for number in range(300)))
    other = Member("me2", "a", *(f"m{number}" for number in range(300) if number != 7))
    ours, theirs = member.digest().digests, other.digest().digests
    differing = {bucket for bucket in range(64) if ours[bucket] != theirs[bucket]}
    member.sent.clear()
    member.hear("a", SyncDigest(theirs))
    pages = [body for body in member.bodies("a") if isinstance(body, SyncState)]
    names = {record.name for page in pages for _, record in page.entries}
    assert "m7" in names
    assert len(names) < 40
    assert pages[-1].answer
    assert all(page.buckets == sum(1 << bucket for bucket in differing) for page in pages)


def test_a_large_table_travels_in_pages_that_fit() -> None:
    member = Member("a", *(f"member-with-a-long-name-{number}" for number in range(3000)))
    member.sent.clear()
    member.hear("a", SyncDigest((0,) * 64))
    assert len(member.sent) > 2
    assert all(len(encode(send.message)) <= MAX_MESSAGE for send in member.sent)
    assert sum(isinstance(body, SyncState) and body.answer for body in member.bodies("a")) == 1


def test_a_flood_of_table_requests_is_bounded() -> None:
    member = Member("a")
    for _ in range(100):
        member.hear("a", SyncDigest((0,) * 64))
    assert len(member.sent) == 20


def test_a_joiner_asks_again_until_someone_answers() -> None:
    swim = Swim(SwimConfig(), ME, random.Random(1))
    now, asked = 10.0, 0
    outputs = swim.joined(now, [record_of("a")])
    while now < 14.0:
        asked += sum(isinstance(output, Send) and isinstance(output.message.body, SyncDigest) for output in outputs)
        now = swim.next_deadline()
        outputs = swim.tick(now)
    assert asked >= 4


# -- coming and going ------------------------------------------------------------------------------------------------


def test_a_new_member_is_known_and_passed_on() -> None:
    member = Member("a")
    member.hear("a", Gossip(), Alive(record_of("new")))
    assert member.kinds("new") == ["joined"]
    member.run(0.3)
    assert Alive(record_of("new")) in member.gossip()


def test_new_metadata_is_an_update_and_a_mere_refutation_is_none() -> None:
    member = Member("a", "b")
    member.hear("a", Gossip(), Alive(record_of("b", 2)))
    member.hear("a", Gossip(), Alive(replace(record_of("b", 3), metadata=b"x")))
    assert member.kinds("b") == ["updated"]
    entry = member.swim.member("b")
    assert entry is not None
    assert entry.record.metadata == b"x"


def test_own_metadata_raises_the_incarnation_and_travels() -> None:
    member = Member("a")
    member.take(member.swim.set_metadata(member.now, b"ok"))
    member.take(member.swim.set_metadata(member.now, b"ok"))
    member.run(1.0)
    assert member.swim.me.incarnation == 4
    assert Alive(replace(ME, incarnation=4, metadata=b"ok")) in member.gossip()


def test_leaving_is_not_dying() -> None:
    member = Member("a", "b")
    member.hear("b", Gossip(), Dead("b", 1, "b"))
    member.run(20.0, answering=True)
    assert member.kinds("b") == ["left"]
    assert member.state("b") is State.LEFT


def test_who_said_goodbye_has_left_even_if_it_was_held_for_dead_first() -> None:
    member = Member("a", "b")
    member.hear("a", Gossip(), Dead("b", 1, "a"))
    member.hear("a", Gossip(), Dead("b", 1, "b"))
    assert member.state("b") is State.LEFT


def test_a_leaving_member_says_goodbye_and_then_is_quiet() -> None:
    member = Member("a", "b", "c")
    member.take(member.swim.leave(member.now))
    assert not member.swim.has_said_goodbye
    member.run(3.0)
    assert member.swim.has_said_goodbye
    assert member.gossip().count(Dead("me", 3, "me")) == 4
    member.sent.clear()
    member.run(60.0)
    assert member.sent == []


def test_a_leaving_member_does_not_refute() -> None:
    member = Member("a")
    member.take(member.swim.leave(member.now))
    member.hear("a", Gossip(), Dead("me", 3, "a"))
    assert member.swim.me.incarnation == 3


def test_a_lone_member_leaves_at_once() -> None:
    member = Member()
    member.take(member.swim.leave(member.now))
    member.run(0.5)
    assert member.swim.has_said_goodbye


def test_a_member_that_comes_back_outbids_its_own_past() -> None:
    member = Member("a")
    member.hear("a", SyncState(1, False, ((State.DEAD, replace(ME, incarnation=40, session=1)),)))
    assert member.swim.me.incarnation == 41
    member.hear("a", Gossip(), Alive(replace(ME, incarnation=60, session=1)))
    assert member.swim.me.incarnation == 61
    assert member.kinds("me") == []


@pytest.mark.parametrize(("gone", "event"), [(Dead("b", 1, "a"), "alive"), (Dead("b", 1, "b"), "joined")])
def test_a_gone_member_returns_only_with_a_higher_incarnation(gone: Dead, event: str) -> None:
    member = Member("a", "b")
    member.hear("a", Gossip(), gone)
    member.hear("a", Gossip(), Alive(record_of("b", 1)))
    assert member.state("b") is not State.ALIVE
    member.hear("a", Gossip(), Alive(record_of("b", 2, address="10.9.9.9:1", session=2)))
    assert member.state("b") is State.ALIVE
    assert member.kinds("b")[-1] == event


def test_a_second_process_under_a_living_name_is_a_conflict_and_changes_nothing() -> None:
    member = Member("a", "b")
    for incarnation in range(2, 9):
        member.hear("a", Gossip(), Alive(record_of("b", incarnation, address="10.6.6.6:1", session=9)))
    assert member.kinds("b") == ["conflict"]
    entry = member.swim.member("b")
    assert entry is not None
    assert entry.record == record_of("b")


def test_a_newer_process_under_our_own_name_is_a_conflict_and_no_shouting_match() -> None:
    member = Member("a")
    member.hear("a", Gossip(), Alive(replace(ME, incarnation=9, session=6, address="10.6.6.6:1")))
    assert member.kinds("me") == ["conflict"]
    assert member.swim.me.incarnation == 3


def test_the_gone_are_forgotten_after_their_time() -> None:
    member = Member("a", "b", config=SwimConfig(gone_retention=100.0))
    member.hear("a", Gossip(), Dead("b", 1, "b"))
    member.run(90.0, answering=True)
    assert member.state("b") is State.LEFT
    member.run(60.0, answering=True)
    assert member.state("b") is None


def test_a_table_at_its_limit_takes_nobody_new_unless_one_is_gone() -> None:
    member = Member("a", "b", config=SwimConfig(max_members=3))
    member.hear("a", Gossip(), Alive(record_of("c")))
    assert (member.state("c"), member.swim.counters.over_limit) == (None, 1)
    member.hear("a", Gossip(), Dead("b", 1, "a"), Alive(record_of("c")))
    assert (member.state("c"), member.state("b")) == (State.ALIVE, None)


# -- who may say what ------------------------------------------------------------------------------------------------


def test_a_message_under_anothers_name_is_refused_and_counted() -> None:
    member = Member("a", "b")
    forged = Message("b", 1, 999, Gossip(), (Dead("b", 1, "b"),))
    assert member.swim.receive(member.now, "a", forged) == []
    assert member.state("b") is State.ALIVE
    assert member.swim.counters.forged == 1


def test_a_replayed_message_is_ignored_and_counted() -> None:
    member = Member("a", "b")
    message = Message("a", 1, 999, Ping(1), (Suspect("b", 1, "a"),))
    assert member.take(member.swim.receive(member.now, "a", message))
    member.hear("b", Gossip(), Alive(record_of("b", 2)))
    member.sent.clear()
    assert member.swim.receive(member.now, "a", message) == []
    assert member.state("b") is State.ALIVE
    assert member.swim.counters.replayed == 1


def test_a_message_of_an_earlier_session_is_ignored() -> None:
    member = Member("a")
    member.hear("a", Ping(1), session=7)
    member.sent.clear()
    member.hear("a", Ping(2), session=6)
    assert member.sent == []


def test_a_removed_member_is_gone_and_neither_heard_nor_heard_of() -> None:
    member = Member("a", "b")
    member.take(member.swim.remove(member.now, "b"))
    assert member.kinds("b") == ["left"]
    member.hear("b", Ping(1))
    member.hear("a", Gossip(), Alive(record_of("b", 9)))
    member.hear("a", SyncState(1, False, ((State.ALIVE, record_of("b", 9)),)))
    assert member.state("b") is None
    assert member.bodies("b") == []
    assert member.swim.counters.shut_out == 1
    member.swim.readmit("b")
    member.hear("a", Gossip(), Alive(record_of("b", 10)))
    assert member.state("b") is State.ALIVE


# -- time ------------------------------------------------------------------------------------------------------------


def test_before_it_joins_a_machine_waits_for_nothing() -> None:
    assert Swim(SwimConfig(), ME, random.Random(1)).next_deadline() == math.inf


def test_a_member_that_was_stopped_blames_nobody() -> None:
    member = Member("a", "b", "c", "d", "e", "x")
    for accuser in "abc":
        member.hear(accuser, Gossip(), Suspect("x", 1, accuser))
    member.run(1.3)
    member.events.clear()
    member.now += 60.0
    member.take(member.swim.tick(member.now))
    assert member.events == []
    assert member.swim.counters.pauses == 1
    member.hear("a", Gossip(), Alive(record_of("x", 2)))
    assert member.state("x") is State.ALIVE


def test_after_a_stop_a_member_asks_what_happened() -> None:
    member = Member("a")
    member.now += 60.0
    member.take(member.swim.tick(member.now))
    assert any(isinstance(body, SyncDigest) for body in member.bodies("a"))


def test_a_death_heard_right_after_a_stop_is_only_a_suspicion_for_it_may_be_old() -> None:
    member = Member("a", "b", "c")
    member.now += 60.0
    member.take(member.swim.tick(member.now))
    member.hear("a", Gossip(), Dead("b", 1, "a"))
    assert member.state("b") is State.SUSPECT
    member.hear("a", SyncState(0, False, ()))
    member.hear("a", Gossip(), Dead("c", 1, "a"))
    assert member.state("c") is State.DEAD


def test_a_clock_that_steps_back_stops_nothing() -> None:
    member = Member("a", "b", start=10_000.0)
    member.run(2.0, answering=True)
    member.now -= 5000.0
    member.take(member.swim.tick(member.now))
    assert member.swim.next_deadline() <= member.now + 1.0
    before = member.swim.counters.probes
    member.run(5.0, answering=True)
    assert 4 <= member.swim.counters.probes - before <= 6
    assert member.events == []


def test_an_idle_member_sends_its_probes_and_nothing_else() -> None:
    member = Member("a", "b", "c")
    member.run(3.0, answering=True)
    member.sent.clear()
    member.run(20.0, answering=True)
    assert {type(body) for body in member.bodies()} <= {Ping, SyncDigest}
    assert len(member.sent) <= 22


def test_members_are_listed_with_their_state_and_this_one_among_them() -> None:
    member = Member("a", "b")
    member.hear("a", Gossip(), Dead("b", 1, "a"))
    listed: list[Entry] = member.swim.members()
    assert {entry.name: entry.state for entry in listed} == {
        "me": State.ALIVE,
        "a": State.ALIVE,
        "b": State.DEAD,
    }
    assert member.swim.live == 2


@pytest.mark.parametrize(
    ("settings", "reason"), [({"probe_timeout": 2.0}, "probe_timeout"), ({"suspicion_multiplier": 0}, "at least 1")]
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, float], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        SwimConfig(**settings)  # type: ignore[arg-type]  # a table of wrong settings
