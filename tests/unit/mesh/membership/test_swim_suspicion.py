"""Members that are suspected: how long, and how they refute it."""

from dataclasses import replace

import pytest
from tests.unit.mesh.membership.swim_member import ME, Member, record_of

from rackwright.mesh.membership.member import State
from rackwright.mesh.membership.messages import Alive, Dead, Gossip, Ping, Suspect


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
    member.hear("a", Gossip(), Alive(record_of("b", 2)))
    member.run(10.0, answering=True)
    assert member.kinds("b") == ["suspect", "alive"]


def test_a_refutation_of_an_old_incarnation_does_not_count() -> None:
    member = Member("a", "b")
    member.hear("a", Gossip(), Suspect("b", 1, "a"))
    member.hear("a", Gossip(), Alive(record_of("b", 1)))
    assert member.state("b") is State.SUSPECT


def test_an_accusation_of_an_old_incarnation_does_not_count() -> None:
    member = Member("a", "b")
    member.hear("a", Gossip(), Alive(record_of("b", 5)))
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
        member.hear("a", Gossip(), Alive(record_of("x", incarnation + 1)))
        member.run(0.001)
    assert len(member.swim._membership.timers) < 50
    assert member.state("x") is State.ALIVE
