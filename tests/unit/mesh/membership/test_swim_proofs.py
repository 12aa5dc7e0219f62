"""A process that is proved dead by refused connections, without waiting for a suspicion."""

import pytest
from tests.unit.mesh.membership.swim_member import Member, record_of

from rackwright.mesh.membership.member import State
from rackwright.mesh.membership.messages import Alive, DialReport, DialRequest, Gossip, ProbeVerdict
from rackwright.mesh.membership.swim import Dial


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
    member.hear("x", Gossip(), Alive(record_of("x", 2, session=2)), session=2)
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


def test_a_dial_is_asked_of_the_transport_as_an_output() -> None:
    member = Member("a", "x")
    assert Dial("x") in member.take(member.swim.connection_closed(member.now, "x"))
