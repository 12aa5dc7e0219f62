"""How one membership machine probes others, and relays for those who probe."""

import pytest
from tests.unit.mesh.membership.swim_member import Member

from rackwright.mesh.membership.messages import Ack, Nack, Ping, PingRequest
from rackwright.mesh.membership.swim import SwimConfig


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
