"""The values of a run: which servers its targets match, what is signed, and a tree that is packed and unpacked."""

from dataclasses import replace
from pathlib import Path

import pytest

from rackwright.mesh.datastore.etcd_client import Change, Item
from rackwright.mesh.errors import BadRequest
from rackwright.mesh.runs.event_batches import MAX_BATCH, MAX_UNPACKED, Cursor, batches, event_lines, pack, read_cursor
from rackwright.mesh.runs.run_model import (
    RunRequest,
    Targets,
    Task,
    TaskState,
    gate_name,
    pack_tree,
    read_request,
    read_task,
    split_tree,
    tree_digest,
    unpack_tree,
)

REQUEST = RunRequest("r", "SHA256:x", 10, 20, "digest", Targets(("web*",), {"rack": "a"}, {"os": "Debian"}), ["init"])


@pytest.mark.parametrize(
    ("targets", "meant"),
    [
        (Targets(("web*",)), True),
        (Targets(("db*", "web1")), True),
        (Targets(("db*",)), False),
        (Targets((), {"rack": "a"}), True),
        (Targets((), {"rack": "b"}), False),
        (Targets((), {"row": "*"}), False),
        (Targets((), {}, {"num_cpus": "8"}), True),
        (Targets((), {}, {"os": "Deb*"}), True),
        (Targets(("web*",), {"rack": "a"}, {"os": "Fedora"}), False),
    ],
)
def test_any_of_the_names_and_all_of_labels_and_facts_must_fit(targets: Targets, meant: bool) -> None:
    assert targets.match("web1", {"rack": "a"}, {"os": "Debian", "num_cpus": 8}) is meant


def test_a_run_on_nobody_in_particular_is_refused() -> None:
    with pytest.raises(BadRequest, match="--on"):
        Targets()


def test_a_request_is_read_as_it_was_written_and_its_text_changes_with_every_field() -> None:
    assert read_request(REQUEST.dump()) == REQUEST
    changed = [replace(REQUEST, mode="justdoit"), replace(REQUEST, variables={"a": 1}), replace(REQUEST, tree="other")]
    assert len({REQUEST.dump(), *(request.dump() for request in changed)}) == 4


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"id": "x"}', '{"targets": {"names": []}}'])
def test_what_is_no_request_is_refused_in_words(text: str) -> None:
    with pytest.raises(BadRequest):
        read_request(text)


def test_a_task_is_read_as_it_was_written() -> None:
    task = Task("r", "s1", TaskState.FAILED, 3, "because", {"failed": 1}, 2.5)
    assert read_task(task.dump()) == task


def make_tree(folder: Path) -> Path:
    (folder / "web").mkdir(parents=True)
    (folder / "init.sls").write_text("a:\n  test.nop: []\n")
    (folder / "web" / "logo.png").write_bytes(bytes(range(256)))
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("secret")
    return folder


def test_the_same_tree_has_the_same_digest_and_hidden_files_stay_at_home(tmp_path: Path) -> None:
    first, second = make_tree(tmp_path / "one"), make_tree(tmp_path / "two")
    assert pack_tree(first) == pack_tree(second)
    assert set(unpack_tree(pack_tree(first), tree_digest(pack_tree(first)))) == {"init.sls", "web/logo.png"}


def test_an_altered_tree_is_refused(tmp_path: Path) -> None:
    packed = pack_tree(make_tree(tmp_path / "tree"))
    with pytest.raises(BadRequest, match="not those that were signed"):
        unpack_tree(packed[:-1] + bytes([packed[-1] ^ 1]), tree_digest(packed))


def test_a_large_tree_travels_in_parts_that_give_it_again() -> None:
    packed = bytes(range(256)) * 5000
    assert b"".join(split_tree(packed)) == packed
    assert max(map(len, split_tree(packed))) <= 512 * 1024


def test_states_of_one_id_have_gates_of_their_own() -> None:
    assert len({gate_name("cmd.run", "a", 0), gate_name("cmd.run", "a", 1), gate_name("cmd.run", "b", 0)}) == 3


@pytest.mark.parametrize(
    ("cursor", "read"),
    [("", Cursor()), ("7", Cursor(7)), ("7:/events/x", Cursor(7, "/events/x")), ("7:/x#12", Cursor(7, "/x", 12))],
)
def test_a_cursor_says_where_to_go_on(cursor: str, read: Cursor) -> None:
    assert read_cursor(cursor) == read


@pytest.mark.parametrize("cursor", ["yesterday", "7:/x#y", "7:/x#"])
def test_what_is_no_cursor_is_refused_in_words(cursor: str) -> None:
    with pytest.raises(BadRequest, match="no cursor"):
        read_cursor(cursor)


def change(value: bytes) -> Change:
    return Change(Item("/x", value, 5, 5), deleted=False)


def test_events_that_share_a_value_are_told_one_by_one_and_from_a_cursor_on() -> None:
    events = event_lines(change(pack([b'{"n": 1}', b'{"n": 2}', b'{"n": 3}'])))
    assert [event.line for event in events] == [b'{"n": 1}', b'{"n": 2}', b'{"n": 3}']
    later_events = event_lines(change(pack([b'{"n": 1}', b'{"n": 2}', b'{"n": 3}'])), read_cursor(events[0].cursor))
    assert later_events == events[1:]


@pytest.mark.parametrize("harm", [b"\x01no zlib", pack([b"\x1b[2J"]), pack([b"{" + b" " * MAX_UNPACKED])])
def test_a_value_that_no_engine_wrote_tells_nothing(harm: bytes) -> None:
    assert event_lines(change(harm)) == []


def test_many_events_are_parted_into_values_that_the_datastore_takes() -> None:
    lines = [b"x" * 1000] * 2000
    parts = list(batches(lines))
    assert [line for part in parts for line in part] == lines
    assert all(sum(map(len, part)) <= MAX_BATCH for part in parts)
