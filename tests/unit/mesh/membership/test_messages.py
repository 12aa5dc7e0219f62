"""The wire format: strict, bounded, and one encoding for one message."""

import random
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackwright.mesh.membership.member import MAX_INCARNATION, MAX_SESSION, BadRecord, MemberRecord, State
from rackwright.mesh.membership.messages import (
    MAX_MESSAGE,
    MAX_NONCE,
    SYNC_BUCKETS,
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
    decode,
    encode,
    encoded_size,
)
from rackwright.mesh.membership.wire import BadMessage

names = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True)
nonces = st.integers(0, MAX_NONCE)
incarnations = st.integers(0, MAX_INCARNATION)
labels = st.dictionaries(names, names, max_size=4).map(lambda labels: tuple(sorted(labels.items())))
records = st.builds(
    MemberRecord,
    names,
    st.builds("{}:{}".format, names, st.integers(1, 65535)),
    incarnations,
    st.integers(0, MAX_SESSION),
    labels,
    st.binary(max_size=512),
)
accusations = st.tuples(names, incarnations, names).filter(lambda parts: parts[0] != parts[2])
updates: st.SearchStrategy[Update] = st.one_of(
    st.builds(Alive, records),
    accusations.map(lambda parts: Suspect(*parts)),
    accusations.map(lambda parts: Dead(*parts)),
    st.builds(lambda name, incarnation: Dead(name, incarnation, name), names, incarnations),
)
words = st.integers(0, 2**64 - 1)
bodies: st.SearchStrategy[Body] = st.one_of(
    st.builds(Ping, nonces),
    st.builds(PingRequest, nonces, names),
    st.builds(Ack, nonces),
    st.builds(Nack, nonces),
    st.just(Gossip()),
    st.builds(SyncDigest, st.lists(words, min_size=SYNC_BUCKETS, max_size=SYNC_BUCKETS).map(tuple)),
    st.builds(
        SyncState, words, st.booleans(), st.lists(st.tuples(st.sampled_from(State), records), max_size=5).map(tuple)
    ),
    st.builds(DialRequest, nonces, names),
    st.builds(DialReport, nonces, st.sampled_from(ProbeVerdict)),
)
messages = st.builds(
    Message, names, st.integers(0, MAX_SESSION), nonces, bodies, st.lists(updates, max_size=6).map(tuple)
)


@given(messages)
@settings(max_examples=200, deadline=None)
def test_every_message_survives_the_wire(message: Message) -> None:
    encoded = encode(message)
    assert decode(encoded) == message
    assert encoded_size(message) == len(encoded)


@given(messages, st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None)
def test_a_damaged_message_is_refused_or_is_another_message(message: Message, rng: random.Random) -> None:
    """Never a crash; and whatever is accepted has just this one encoding."""
    damaged = bytearray(encode(message))
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(damaged))
        change = rng.randrange(3)
        if change == 0:
            damaged[at] = rng.randrange(256)
        elif change == 1:
            del damaged[at:]
            damaged = damaged or bytearray(b"\0")
        else:
            damaged[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 9)))
    try:
        accepted = decode(bytes(damaged))
    except BadMessage:
        return
    assert encode(accepted) == bytes(damaged)


@given(st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_noise_is_refused(noise: bytes) -> None:
    try:
        accepted = decode(noise)
    except BadMessage:
        return
    assert encode(accepted) == noise


@given(st.integers(1, 9), st.binary(max_size=120))
@settings(max_examples=300, deadline=None)
def test_noise_behind_a_valid_head_is_refused_or_canonical(kind: int, noise: bytes) -> None:
    head = struct.pack("!BBQQ", 1, kind, 1, 1) + b"\x01a"
    try:
        accepted = decode(head + noise)
    except BadMessage:
        return
    assert encode(accepted) == head + noise


def test_parsing_refused_messages_leaves_nothing_behind() -> None:
    rng = random.Random(7)
    good = encode(Message("a", 1, 1, Ping(1), tuple(Suspect(f"m{n}", 1, "a") for n in range(50))))
    bad = [bytes(byte ^ (rng.random() < 0.02) for byte in good) for _ in range(500)]

    def parse_all() -> None:
        for encoded in bad:
            try:
                decode(encoded)
            except BadMessage:
                continue

    parse_all()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(4):
            parse_all()
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 16_384
    assert peak - before < 1_000_000


def _head(kind: int, version: int = 1) -> bytes:
    return struct.pack("!BBQQ", version, kind, 1, 1) + b"\x01a"


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (b"", "cut short"),
        (bytes(MAX_MESSAGE + 1), "at most 65536"),
        (_head(1, version=2), "wire version 2"),
        (_head(77), "unknown kind of message 77"),
        (_head(1)[:-1], "cut short"),
        (_head(5) + b"\x00\x00", "1 bytes too many"),
        (_head(5) + b"\x01\x09", "unknown kind of update 9"),
        (_head(9) + struct.pack("!QB", 1, 9), "unknown verdict 9"),
        (_head(7) + struct.pack("!Q?H", 1, True, 2000), "2000 entries"),
        (_head(7) + struct.pack("!QBH", 1, 2, 0), "a flag of 2"),
        (_head(5) + b"\x01\x02\x01x" + bytes(8) + b"\x01x", "accuses itself"),
        (_head(5) + b"\x01\x02\x02x " + bytes(8) + b"\x01y", "no member name"),
        (_head(5) + b"\x01\x02\x01\xff" + bytes(8) + b"\x01y", "not ASCII"),
        (_head(5) + b"\x01\x02\x01x" + b"\xff" * 8 + b"\x01y", "over its limit"),
    ],
)
def test_a_bad_message_is_refused_with_its_reason(encoded: bytes, reason: str) -> None:
    with pytest.raises(BadMessage, match=reason):
        decode(encoded)


def test_metadata_over_its_limit_is_refused_on_the_wire() -> None:
    record = Alive(MemberRecord("x", "h:1", metadata=bytes(512))).wire
    longer = record[: -512 - 2] + struct.pack("!H", 513) + bytes(513)
    with pytest.raises(BadMessage, match="513 bytes of metadata"):
        decode(_head(5) + b"\x01" + longer)


def test_unsorted_labels_are_refused_on_the_wire() -> None:
    """Or one record would have many encodings, and their digests would differ."""
    good = Alive(MemberRecord("x", "h:1", labels=(("a", "1"), ("b", "2")))).wire
    swapped = good.replace(b"\x01a\x011\x01b\x012", b"\x01b\x012\x01a\x011")
    assert swapped != good
    with pytest.raises(BadMessage, match="sorted"):
        decode(_head(5) + b"\x01" + swapped)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"name": "-x"}, "no member name"),
        ({"name": "x" * 254}, "no member name"),
        ({"name": "x\n"}, "no member name"),
        ({"address": "nowhere"}, "not HOST:PORT"),
        ({"address": "a b:1"}, "not HOST:PORT"),
        ({"incarnation": -1}, "incarnation"),
        ({"session": 2**63}, "session"),
        ({"metadata": bytes(513)}, "at most 512"),
        ({"labels": tuple((f"k{n:02}", "") for n in range(33))}, "at most 32"),
        ({"labels": (("k", "a b"),)}, "odd characters"),
        ({"labels": (("", "a"),)}, "no label name"),
        ({"labels": (("k", "1"), ("k", "2"))}, "each name once"),
    ],
)
def test_a_record_over_its_limits_is_never_made(change: dict[str, object], reason: str) -> None:
    fields: dict[str, object] = {"name": "x", "address": "h:1", **change}
    with pytest.raises(BadRecord, match=reason):
        MemberRecord(**fields)  # type: ignore[arg-type]  # the table holds wrong values of right and wrong types


def test_a_message_too_large_to_travel_is_not_encoded() -> None:
    entries = tuple((State.ALIVE, MemberRecord(f"m{n}", "h:1", metadata=bytes(512))) for n in range(200))
    with pytest.raises(BadMessage, match="at most 65536"):
        encode(Message("a", 1, 1, SyncState(1, False, entries)))
