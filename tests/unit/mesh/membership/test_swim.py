"""One membership machine, driven by hand: the messages it receives, and its outputs."""

import itertools
import math
import random
from dataclasses import replace

import pytest

from rackwright.mesh.membership.member import Entry, MemberRecord, State
from rackwright.mesh.membership.messages import (
    MAX_MESSAGE,
    Ack,
    Alive,
    Body,
    Dead,
    DialReport,
    DialRequest,
    Gossip,
    Message,
    Nack,
    Ping,
    PingRequest,
    ProbeVerdict,
    Suspect,
    SyncDigest,
    SyncState,
    Update,
    encode,
)
from rackwright.mesh.membership.swim import Dial, Event, Output, Send, Swim, SwimConfig

ME = MemberRecord("me", "10.0.0.1:1", incarnation=3, session=2)


def _record(name: str, incarnation: int = 1, address: str = "10.0.0.9:1", session: int = 1) -> MemberRecord:
    return MemberRecord(name, address, incarnation, session)


class Member:
    """A membership machine named `me`, and other members whose messages a test makes up."""

    def __init__(self, *others: str, config: SwimConfig | None = None, start: float = 100.0) -> None:
        self.swim = Swim(config or SwimConfig(), ME, random.Random(1))
        self.now = start
        self._sequence = itertools.count(1)
        self.swim.joined(self.now, [_record(name) for name in others])
        for name in others:  # each that is asked for its table answers that it is the same
            self.hear(name, SyncState(0, False, ()))
        self.sent: list[Send] = []
        self.events: list[Event] = []
        self.dials: list[str] = []

    def take(self, outputs: list[Output]) -> list[Output]:
        for output in outputs:
            if isinstance(output, Send):
                self.sent.append(output)
            elif isinstance(output, Event):
                self.events.append(output)
            else:
                self.dials.append(output.peer)
        return outputs

    def hear(self, source: str, body: Body, *updates: Update, session: int = 1) -> list[Output]:
        outputs = self.swim.receive(self.now, source, Message(source, session, next(self._sequence), body, updates))
        return self.take(outputs) if hasattr(self, "sent") else outputs

    def run(self, seconds: float, answering: bool = False) -> None:
        """Let time pass, tick by tick; with `answering`, everyone but the dead answers every ping at once."""
        end = self.now + seconds
        while (deadline := self.swim.next_deadline()) <= end:
            self.now = max(self.now, deadline)
            outputs = self.take(self.swim.tick(self.now))
            for output in outputs:
                if answering and isinstance(output, Send) and isinstance(output.message.body, Ping):
                    self.hear(output.to, Ack(output.message.body.nonce))
        self.now = end

    def digest(self) -> SyncDigest:
        """Return the digest of its table, as it sends it to another member when the time comes."""
        self.run(200.0, answering=True)
        return next(body for body in reversed(self.bodies()) if isinstance(body, SyncDigest))

    def state(self, name: str) -> State | None:
        entry = self.swim.member(name)
        return entry.state if entry is not None else None

    def kinds(self, name: str) -> list[str]:
        return [event.kind.value for event in self.events if event.member.name == name]

    def bodies(self, to: str | None = None) -> list[Body]:
        return [send.message.body for send in self.sent if to in (None, send.to)]

    def gossip(self) -> list[Update]:
        return [update for send in self.sent for update in send.message.updates]

    def first_ping(self) -> tuple[str, int]:
        for send in self.sent:
            if isinstance(send.message.body, Ping):
                return send.to, send.message.body.nonce
        raise AssertionError("no ping was sent")


# -- probing ---------------------------------------------------------------------------------------------------------


def test_a_ping_is_answered_at_once() -> None:
    member = Member("a")
    member.hear("a", Ping(77))
    assert member.bodies("a") == [Ack(77)]


def test_every_member_is_probed_once_a_round() -> None:
    member = Member("a", "b", "c", "d")
    member.run(8.0, answering=True)
    probed = [send.to for send in member.sent if isinstance(send.message.body, Ping)]
    assert len(probed) == 8
    assert sorted(probed[:4]) == sorted(probed[4:]) == ["a", "b", "c", "d"]


def test_without_an_answer_three_others_are_asked_and_the_target_over_a_sure_channel() -> None:
    member = Member("a", "b", "c", "d", "e")
    member.run(1.0)
    target, nonce = member.first_ping()
    member.run(0.5)
    asked = [send.to for send in member.sent if send.message.body == PingRequest(nonce, target)]
    assert len(set(asked)) == 3
    assert target not in asked
    assert [send.to for send in member.sent if send.reliable and send.message.body == Ping(nonce)] == [target]


def _asks_others_after(member: Member) -> float:
    """Seconds from a ping nobody answers to the first request to a relay."""
    member.sent.clear()
    began = member.now
    while not any(isinstance(body, Ping) for body in member.bodies()):
        member.run(0.01)
        began = member.now
    while not any(isinstance(body, PingRequest) for body in member.bodies()):
        member.run(0.01)
    return member.now - began


def test_where_all_answer_at_once_others_are_asked_sooner() -> None:
    member = Member("a", "b", "c", "d")
    assert _asks_others_after(member) == pytest.approx(0.5, abs=0.02)
    quick = Member("a", "b", "c", "d")
    quick.run(30, answering=True)
    assert _asks_others_after(quick) == pytest.approx(0.2, abs=0.02)


def test_one_slow_answer_makes_a_member_patient_again() -> None:
    member = Member("a", "b", "c", "d")
    member.run(30, answering=True)
    member.sent.clear()
    while not any(isinstance(body, Ping) for body in member.bodies()):
        member.run(0.01)
    target, nonce = member.first_ping()
    member.run(0.15)
    member.hear(target, Ack(nonce))
    assert _asks_others_after(member) == pytest.approx(0.5, abs=0.02)


def test_an_answer_through_a_relay_saves_the_target() -> None:
    member = Member("a", "b", "c", "d", "e")
    member.run(1.0)
    target, nonce = member.first_ping()
    member.run(0.5)
    relay = next(send.to for send in member.sent if isinstance(send.message.body, PingRequest))
    member.hear(relay, Ack(nonce))
    member.run(0.4)
    assert member.kinds(target) == []


def test_an_ack_of_someone_who_was_not_asked_saves_nobody() -> None:
    member = Member("a", "b")
    member.run(1.0)
    target, nonce = member.first_ping()
    bystander = "b" if target == "a" else "a"
    member.hear(bystander, Ack(nonce))
    member.run(1.0)
    assert member.kinds(target) == ["suspect"]


def test_a_relay_passes_the_answer_on() -> None:
    member = Member("a", "b")
    member.hear("a", PingRequest(500, "b"))
    nonce = next(body.nonce for body in member.bodies("b") if isinstance(body, Ping))
    member.hear("b", Ack(nonce))
    assert Ack(500) in member.bodies("a")


def test_a_relay_says_nack_when_the_target_is_silent_and_still_passes_on_a_late_answer() -> None:
    member = Member("a", "b")
    member.hear("a", PingRequest(500, "b"))
    nonce = next(body.nonce for body in member.bodies("b") if isinstance(body, Ping))
    member.run(0.25)
    assert Nack(500) in member.bodies("a")
    member.hear("b", Ack(nonce))
    assert Ack(500) in member.bodies("a")


def test_when_all_relays_say_nack_the_target_is_suspect_before_the_interval_ends() -> None:
    member = Member("a", "b", "c", "d", "e")
    member.run(1.0)
    target, nonce = member.first_ping()
    member.run(0.5)
    relays = [send.to for send in member.sent if isinstance(send.message.body, PingRequest)]
    for relay in relays[:2]:
        member.hear(relay, Nack(nonce))
    assert member.kinds(target) == []
    member.hear(relays[2], Nack(nonce))
    assert member.kinds(target) == ["suspect"]
    assert member.swim.awareness == 0


def test_silent_relays_make_the_member_doubt_itself_and_probe_slower() -> None:
    member = Member("a", "b", "c", "d", "e")
    member.run(2.0)
    assert member.swim.awareness == 3
    before = member.swim.counters.probes
    member.run(3.9)
    assert member.swim.counters.probes - before <= 1


def test_answers_restore_trust_in_oneself() -> None:
    member = Member("a", "b", "c", "d", "e")
    member.run(2.0)
    member.run(30.0, answering=True)
    assert member.swim.awareness == 0


def test_a_flood_of_relay_requests_is_bounded() -> None:
    member = Member("a", "b", config=SwimConfig(max_relays=10))
    for nonce in range(50):
        member.hear("a", PingRequest(nonce, "b"))
    assert len([body for body in member.bodies("b") if isinstance(body, Ping)]) == 10
    assert member.swim.counters.over_limit == 40


# -- suspicion -------------------------------------------------------------------------------------------------------


def test_a_suspect_that_stays_silent_is_dead_after_the_suspicion_and_not_before() -> None:
    member = Member("a", "b")
    member.hear("a", Gossip(), Suspect("b", 1, "a"))
    member.run(3.9)
    assert member.state("b") is State.SUSPECT
    member.run(0.2)
    assert member.state("b") is State.DEAD
    assert member.kinds("b") == ["suspect", "dead"]
    assert Dead("b", 1, "me") in member.gossip()


def test_confirmations_shorten_a_suspicion() -> None:
    def lasts(*accusers: str) -> float:
        member = Member("a", "b", "c", "d", "x")
        for accuser in accusers:
            member.hear(accuser, Gossip(), Suspect("x", 1, accuser))
        start = member.now
        while member.state("x") is State.SUSPECT:
            # x answers our pings, so no accusation of our own counts; an answer to us alone refutes nothing.
            member.run(0.1, answering=True)
        return member.now - start

    assert lasts("a") == pytest.approx(24.0, abs=0.2)
    assert lasts("a", "a", "a") == pytest.approx(24.0, abs=0.2)
    assert lasts("a", "b") == pytest.approx(11.4, abs=0.2)
    assert lasts("a", "b", "c") == pytest.approx(4.0, abs=0.2)


def test_a_suspect_that_refutes_is_alive() -> None:
    member = Member("a", "b")
    member.hear("a", Gossip(), Suspect("b", 1, "a"))
    member.hear("a", Gossip(), Alive(_record("b", 2)))
    member.run(10.0, answering=True)
    assert member.kinds("b") == ["suspect", "alive"]


def test_a_refutation_of_an_old_incarnation_does_not_count() -> None:
    member = Member("a", "b")
    member.hear("a", Gossip(), Suspect("b", 1, "a"))
    member.hear("a", Gossip(), Alive(_record("b", 1)))
    assert member.state("b") is State.SUSPECT


def test_an_accusation_of_an_old_incarnation_does_not_count() -> None:
    member = Member("a", "b")
    member.hear("a", Gossip(), Alive(_record("b", 5)))
    member.hear("a", Gossip(), Suspect("b", 4, "a"), Dead("b", 4, "a"))
    assert member.state("b") is State.ALIVE


def test_an_accuser_nobody_knows_does_not_count() -> None:
    member = Member("a", "b")
    member.hear("a", Gossip(), Suspect("b", 1, "ghost"), Dead("b", 1, "ghost"))
    assert member.state("b") is State.ALIVE


def test_an_accused_member_refutes_with_a_higher_incarnation() -> None:
    member = Member("a", "b")
    member.hear("a", Gossip(), Suspect("me", 3, "b"))
    assert member.swim.me.incarnation == 4
    member.run(0.3)
    assert Alive(replace(ME, incarnation=4)) in member.gossip()
    assert member.swim.awareness == 1


def test_a_member_held_for_dead_refutes_too() -> None:
    member = Member("a")
    member.hear("a", Gossip(), Dead("me", 9, "a"))
    assert member.swim.me.incarnation == 10


def test_who_accuses_after_the_refutation_is_told_so_directly() -> None:
    member = Member("a")
    member.hear("a", Ping(1), Suspect("me", 2, "a"))
    assert member.swim.me.incarnation == 3
    assert member.sent[-1].message.updates[0] == Alive(ME)


def test_a_suspect_is_told_of_the_suspicion_with_every_message() -> None:
    """Lifeguard's buddy system."""
    member = Member("a", "b")
    member.hear("a", Gossip(), Suspect("b", 1, "a"))
    member.run(3.0)
    to_b = [send.message for send in member.sent if send.to == "b" and isinstance(send.message.body, Ping)]
    assert to_b
    assert all(message.updates[0] == Suspect("b", 1, "me") for message in to_b)


def test_a_dead_member_that_pings_hears_that_it_is_held_for_dead() -> None:
    member = Member("a", "b")
    member.hear("a", Gossip(), Dead("b", 1, "a"))
    member.hear("b", Ping(5))
    assert member.sent[-1].message.updates[0] == Dead("b", 1, "me")


def test_a_member_that_flips_for_ever_does_not_fill_the_memory() -> None:
    member = Member("a", "b", "c", "d", "x")
    for incarnation in range(1, 3000):
        member.hear("a", Gossip(), Suspect("x", incarnation, "a"), Suspect("x", incarnation, "b"))
        member.hear("a", Gossip(), Alive(_record("x", incarnation + 1)))
        member.run(0.001)
    assert len(member.swim._membership.timers) < 50
    assert member.state("x") is State.ALIVE


# -- tables ----------------------------------------------------------------------------------------------------------


def test_dead_in_a_peers_table_is_only_a_suspicion() -> None:
    member = Member("a", "b")
    member.hear("a", SyncState(1, False, ((State.DEAD, _record("b")),)))
    assert member.kinds("b") == ["suspect"]


def test_left_in_a_peers_table_is_believed() -> None:
    member = Member("a", "b")
    member.hear("a", SyncState(1, False, ((State.LEFT, _record("b")),)))
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
    outputs = swim.joined(now, [_record("a")])
    while now < 14.0:
        asked += sum(isinstance(output, Send) and isinstance(output.message.body, SyncDigest) for output in outputs)
        now = swim.next_deadline()
        outputs = swim.tick(now)
    assert asked >= 4


# -- coming and going ------------------------------------------------------------------------------------------------


def test_a_new_member_is_known_and_passed_on() -> None:
    member = Member("a")
    member.hear("a", Gossip(), Alive(_record("new")))
    assert member.kinds("new") == ["joined"]
    member.run(0.3)
    assert Alive(_record("new")) in member.gossip()


def test_new_metadata_is_an_update_and_a_mere_refutation_is_none() -> None:
    member = Member("a", "b")
    member.hear("a", Gossip(), Alive(_record("b", 2)))
    member.hear("a", Gossip(), Alive(replace(_record("b", 3), metadata=b"x")))
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
    member.hear("a", Gossip(), Alive(_record("b", 1)))
    assert member.state("b") is not State.ALIVE
    member.hear("a", Gossip(), Alive(_record("b", 2, address="10.9.9.9:1", session=2)))
    assert member.state("b") is State.ALIVE
    assert member.kinds("b")[-1] == event


def test_a_second_process_under_a_living_name_is_a_conflict_and_changes_nothing() -> None:
    member = Member("a", "b")
    for incarnation in range(2, 9):
        member.hear("a", Gossip(), Alive(_record("b", incarnation, address="10.6.6.6:1", session=9)))
    assert member.kinds("b") == ["conflict"]
    entry = member.swim.member("b")
    assert entry is not None
    assert entry.record == _record("b")


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
    member.hear("a", Gossip(), Alive(_record("c")))
    assert (member.state("c"), member.swim.counters.over_limit) == (None, 1)
    member.hear("a", Gossip(), Dead("b", 1, "a"), Alive(_record("c")))
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
    member.hear("b", Gossip(), Alive(_record("b", 2)))
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
    member.hear("a", Gossip(), Alive(_record("b", 9)))
    member.hear("a", SyncState(1, False, ((State.ALIVE, _record("b", 9)),)))
    assert member.state("b") is None
    assert member.bodies("b") == []
    assert member.swim.counters.shut_out == 1
    member.swim.readmit("b")
    member.hear("a", Gossip(), Alive(_record("b", 10)))
    assert member.state("b") is State.ALIVE


# -- proof of a dead process -----------------------------------------------------------------------------------------


def _helpers(member: Member) -> list[tuple[str, int]]:
    return [(send.to, send.message.body.nonce) for send in member.sent if isinstance(send.message.body, DialRequest)]


def test_closed_and_refused_to_me_and_two_others_is_dead_at_once() -> None:
    member = Member("a", "b", "c", "x")
    member.take(member.swim.connection_closed(member.now, "x"))
    assert member.dials == ["x"]
    member.take(member.swim.connection_refused(member.now, "x"))
    helpers = _helpers(member)
    assert len(helpers) == 2
    member.hear(helpers[0][0], DialReport(helpers[0][1], ProbeVerdict.REFUSED))
    assert member.state("x") is State.ALIVE
    member.hear(helpers[1][0], DialReport(helpers[1][1], ProbeVerdict.REFUSED))
    assert member.kinds("x") == ["dead"]
    assert member.swim.counters.deaths_proved == 1


def test_a_closed_connection_alone_proves_nothing() -> None:
    member = Member("a", "b", "x")
    member.take(member.swim.connection_closed(member.now, "x"))
    member.run(10.0, answering=True)
    assert member.kinds("x") == []


def test_a_refusal_without_a_closed_connection_proves_nothing() -> None:
    member = Member("a", "b", "x")
    member.take(member.swim.connection_refused(member.now, "x"))
    assert member.kinds("x") == []
    assert _helpers(member) == []


def test_a_reconnect_ends_the_inquiry() -> None:
    member = Member("a", "b", "x")
    member.take(member.swim.connection_closed(member.now, "x"))
    member.take(member.swim.connected(member.now, "x"))
    member.take(member.swim.connection_refused(member.now, "x"))
    assert _helpers(member) == []


@pytest.mark.parametrize("verdict", [ProbeVerdict.CONNECTED, ProbeVerdict.TIMEOUT])
def test_one_helper_that_is_not_refused_spoils_the_proof(verdict: ProbeVerdict) -> None:
    member = Member("a", "b", "x")
    member.take(member.swim.connection_closed(member.now, "x"))
    member.take(member.swim.connection_refused(member.now, "x"))
    (first, nonce), (second, _) = _helpers(member)
    member.hear(first, DialReport(nonce, ProbeVerdict.REFUSED))
    member.hear(second, DialReport(nonce, verdict))
    member.run(10.0, answering=True)
    assert member.kinds("x") == []


def test_a_report_of_someone_who_was_not_asked_does_not_count() -> None:
    member = Member("a", "b", "c", "d", "x")
    member.take(member.swim.connection_closed(member.now, "x"))
    member.take(member.swim.connection_refused(member.now, "x"))
    asked = dict(_helpers(member))
    nonce = next(iter(asked.values()))
    for name in {"a", "b", "c", "d"} - asked.keys():
        member.hear(name, DialReport(nonce, ProbeVerdict.REFUSED))
    assert member.state("x") is State.ALIVE


def test_with_two_members_the_refusal_to_oneself_is_all_the_proof_there_is() -> None:
    member = Member("x")
    member.take(member.swim.connection_closed(member.now, "x"))
    member.take(member.swim.connection_refused(member.now, "x"))
    assert member.kinds("x") == ["dead"]


def test_a_helper_that_does_not_answer_is_replaced() -> None:
    member = Member("a", "b", "c", "x")
    member.take(member.swim.connection_closed(member.now, "x"))
    member.take(member.swim.connection_refused(member.now, "x"))
    (first, nonce), (_silent, _) = _helpers(member)
    member.hear(first, DialReport(nonce, ProbeVerdict.REFUSED))
    member.run(0.6, answering=True)
    third = _helpers(member)[2][0]
    member.hear(third, DialReport(nonce, ProbeVerdict.REFUSED))
    assert member.kinds("x") == ["dead"]


def test_a_member_that_came_back_meanwhile_is_not_declared_dead() -> None:
    member = Member("a", "x")
    member.take(member.swim.connection_closed(member.now, "x"))
    member.take(member.swim.connection_refused(member.now, "x"))
    ((helper, nonce),) = _helpers(member)
    member.hear("x", Gossip(), Alive(_record("x", 2, session=2)), session=2)
    member.hear(helper, DialReport(nonce, ProbeVerdict.REFUSED))
    assert member.state("x") is State.ALIVE


@pytest.mark.parametrize("verdict", list(ProbeVerdict))
def test_a_helper_dials_and_reports_what_it_saw(verdict: ProbeVerdict) -> None:
    member = Member("a", "x")
    member.hear("a", DialRequest(42, "x"))
    assert member.dials == ["x"]
    if verdict is ProbeVerdict.REFUSED:
        member.take(member.swim.connection_refused(member.now, "x"))
    elif verdict is ProbeVerdict.CONNECTED:
        member.take(member.swim.connected(member.now, "x"))
    else:
        member.run(0.6)
    assert DialReport(42, verdict) in member.bodies("a")


def test_nobody_is_dialled_who_is_not_a_member() -> None:
    member = Member("a")
    member.hear("a", DialRequest(42, "stranger"))
    member.hear("a", DialRequest(42, "me"))
    assert member.dials == []


def test_many_who_ask_about_one_cause_one_dial() -> None:
    member = Member("a", "b", "c", "x")
    for name in "abc":
        member.hear(name, DialRequest(1, "x"))
    assert member.dials == ["x"]
    member.take(member.swim.connection_refused(member.now, "x"))
    assert [send.to for send in member.sent if send.message.body == DialReport(1, ProbeVerdict.REFUSED)] == [
        "a",
        "b",
        "c",
    ]


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
    member.hear("a", Gossip(), Alive(_record("x", 2)))
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


def test_a_dial_is_asked_of_the_transport_as_an_output() -> None:
    member = Member("a", "x")
    assert Dial("x") in member.take(member.swim.connection_closed(member.now, "x"))
