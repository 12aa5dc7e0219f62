"""Whose word counts in the datastore: what a member signs for one place, and no copy, no other's and no late one."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.mesh.signing_members import make_identities, statements_of

from rackwright.mesh.bounded_json import MAX_DEPTH
from rackwright.mesh.datastore.etcd_client import Change, Item
from rackwright.mesh.errors import MeshError
from rackwright.mesh.identity.server_identity import Identity
from rackwright.mesh.identity.signed_statements import MARK, BadStatement, Statements
from rackwright.mesh.runs.event_batches import pack
from rackwright.mesh.runs.record_verifier import RecordVerifier
from rackwright.mesh.runs.run_model import CLUSTER_EVENTS, Task, TaskState, gate_prefix, state_key, task_key

PLACE = state_key("r1", "s1", 1)


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Identity]:
    return make_identities(tmp_path_factory.mktemp("ca"), "s1", "s2", "mallory")


@pytest.fixture
def reader(members: dict[str, Identity]) -> Statements:
    return statements_of(members["s2"])


@pytest.fixture
def statement(members: dict[str, Identity]) -> bytes:
    return statements_of(members["s1"]).sign(PLACE, b"all is well")


def test_a_statement_is_believed_where_it_was_made_for(reader: Statements, statement: bytes) -> None:
    assert reader.read(PLACE, statement) == ("s1", b"all is well")


@pytest.mark.parametrize("place", [state_key("r2", "s1", 1), state_key("r1", "s2", 1), state_key("r1", "s1", 2), ""])
def test_a_statement_played_back_for_another_run_server_or_number_is_not(
    reader: Statements, statement: bytes, place: str
) -> None:
    with pytest.raises(BadStatement, match="for this place"):
        reader.read(place, statement)


def test_an_altered_statement_and_an_altered_time_are_not(reader: Statements, statement: bytes) -> None:
    proof, _, content = statement.removeprefix(MARK).partition(b"\n")
    later = json.dumps({**json.loads(proof), "at": int(time.time()) + 1}).encode()
    for altered in (MARK + proof + b"\n" + content + b"!", MARK + later + b"\n" + content):
        with pytest.raises(BadStatement, match="signature"):
            reader.read(PLACE, altered)


def test_a_statement_of_a_member_of_another_cluster_is_not(reader: Statements, tmp_path: Path) -> None:
    other = statements_of(make_identities(tmp_path, "s1")["s1"])
    with pytest.raises(BadStatement, match="signature of a member"):
        reader.read(PLACE, other.sign(PLACE, b"x"))


def test_a_statement_of_a_removed_member_is_not(members: dict[str, Identity], statement: bytes) -> None:
    reader = statements_of(members["s2"], lambda name, number: name == "s1")
    with pytest.raises(BadStatement, match="removed from the cluster"):
        reader.read(PLACE, statement)


def test_what_was_signed_before_the_run_began_or_after_the_certificate_ended_is_not(
    reader: Statements, statement: bytes, members: dict[str, Identity], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadStatement, match="another time"):
        reader.read(PLACE, statement, since=time.time() + 60)
    late = members["s1"].expires.timestamp() + 1
    monkeypatch.setattr("rackwright.mesh.identity.signed_statements.time.time", lambda: late)
    with pytest.raises(BadStatement, match="another time"):
        reader.read(PLACE, statements_of(members["s1"]).sign(PLACE, b"x"))


JUNK = [
    b"",
    b"\xff\xfe",
    b"{}",
    b"[" * 100_000,
    MARK,
    MARK + b"\n",
    MARK + b"[]\n",
    MARK + b'{"at": "x"}\n',
    MARK + b'{"at": 1e999, "certificate": "", "signature": ""}\n',
    MARK + b'{"at": 1, "certificate": "AAAA", "signature": "AAAA"}\nx',
    MARK + b'{"at": 1, "certificate": 7, "signature": []}\nx',
    MARK + b"[" * 100_000 + b"\nx",
    b'{"kind": "task", "run": 1, "target": [], "state": "done"}',
    b'{"kind": "task", "run": "r1", "target": "s1", "state": "done", "proof": {}}',
    b'{"kind": "task", "run": "r1", "target": "s1", "state": "odd"}',
    b'{"kind": "task", "run": "r1", "target": "s1", "state": "done", "more": 1}',
]


@pytest.mark.parametrize("junk", JUNK, ids=range(len(JUNK)))
def test_junk_is_refused_in_words_wherever_it_lies(reader: Statements, junk: bytes) -> None:
    with pytest.raises(BadStatement):
        reader.read(PLACE, junk)
    verifier = RecordVerifier(reader)
    for place in (PLACE, task_key("r1", "s1"), f"{gate_prefix('r1', 'g')}done/s1", f"{CLUSTER_EVENTS}1-s1-x"):
        for event in verifier.verify_events(change(place, junk), 0.0):
            assert json.loads(event.line)["state"] == "lost"
    assert verifier.verify_task(task_key("r1", "s1"), junk).state is TaskState.LOST


# The records of a run


def change(key: str, value: bytes) -> Change:
    return Change(Item(key, value, 5, 5), deleted=False)


@pytest.fixture
def refused() -> list[MeshError]:
    return []


@pytest.fixture
def verifier(reader: Statements, refused: list[MeshError]) -> RecordVerifier:
    return RecordVerifier(reader, refused.append)


def line(target: str, run: str = "r1", **more: object) -> bytes:
    return json.dumps({"kind": "state", "target": target, "run": run, **more}).encode()


def test_events_of_a_state_are_believed_from_their_own_server_only(
    verifier: RecordVerifier, members: dict[str, Identity], refused: list[MeshError]
) -> None:
    mine, mallory = statements_of(members["s1"]), statements_of(members["mallory"])
    assert [
        event.line for event in verifier.verify_events(change(PLACE, mine.sign(PLACE, pack([line("s1")]))), 0.0)
    ] == [line("s1")]
    assert not refused
    for value in (pack([line("s1")]), mallory.sign(PLACE, pack([line("s1")]))):
        assert verifier.verify_events(change(PLACE, value), 0.0) == []
    assert len(refused) == 2


def test_a_server_cannot_speak_of_another_within_its_own_events(
    verifier: RecordVerifier, members: dict[str, Identity], refused: list[MeshError]
) -> None:
    place = state_key("r1", "mallory", 1)
    deep = line("mallory", deep=0).replace(b"0}", b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}")
    lines = [line("s1"), line("mallory", "r2"), b"[]", b"{", deep, line("mallory")]
    value = statements_of(members["mallory"]).sign(place, pack(lines))
    assert [event.line for event in verifier.verify_events(change(place, value), 0.0)] == [line("mallory")]
    assert len(refused) == 5


@pytest.mark.parametrize("state", [TaskState.DONE, TaskState.FAILED, TaskState.REFUSED])
def test_the_end_of_a_task_is_believed_from_its_target_only(
    verifier: RecordVerifier, members: dict[str, Identity], refused: list[MeshError], state: TaskState
) -> None:
    task = Task("r1", "s1", state, 1, "why", {"changed": 1}, 2.0)
    place = task_key("r1", "s1")
    own = RecordVerifier(statements_of(members["s1"])).sign_task(task)
    assert verifier.verify_task(place, own.dump()) == task
    assert not refused
    forged = RecordVerifier(statements_of(members["mallory"])).sign_task(task)
    elsewhere = RecordVerifier(statements_of(members["s1"])).sign_task(replace(task, run="r0"))
    altered = replace(own, summary={"changed": 9})
    for value in (task, forged, altered, replace(elsewhere, run="r1"), elsewhere):
        assert verifier.verify_task(place, value.dump()).state is TaskState.LOST
    assert "was not written by s1" in verifier.verify_task(place, task.dump()).why


@pytest.mark.parametrize("state", [TaskState.PENDING, TaskState.RUNNING, TaskState.LOST, TaskState.CANCELLED])
def test_what_others_may_say_of_a_task_needs_no_signature(verifier: RecordVerifier, state: TaskState) -> None:
    task = Task("r1", "s1", state)
    assert verifier.verify_task(task_key("r1", "s1"), task.dump()) == task


def test_only_a_server_itself_says_that_it_has_passed_a_gate(
    verifier: RecordVerifier, members: dict[str, Identity]
) -> None:
    place = f"{gate_prefix('r1', 'g')}done/s1"
    assert verifier.verify_events(change(place, statements_of(members["s1"]).sign(place, b"s1")), 0.0)
    for value in (b"s1", statements_of(members["mallory"]).sign(place, b"s1")):
        assert verifier.verify_events(change(place, value), 0.0) == []


def test_an_event_of_the_cluster_is_believed_from_the_server_that_it_names(
    verifier: RecordVerifier, members: dict[str, Identity]
) -> None:
    place = f"{CLUSTER_EVENTS}1-s1-run_finished"
    event = json.dumps({"kind": "run_finished", "server": "s1"}).encode()
    assert verifier.verify_events(change(place, statements_of(members["s1"]).sign(place, event)), 0.0)
    assert verifier.verify_events(change(place, statements_of(members["mallory"]).sign(place, event)), 0.0) == []
    two_lines = b'{"server": "mallory", "x":\n{"ok": true}\n}'
    assert verifier.verify_events(change(place, statements_of(members["mallory"]).sign(place, two_lines)), 0.0) == []
