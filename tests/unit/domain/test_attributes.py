"""Attribute values: merging, the order of the layers, the input of a noderole, and what its hash leaves out."""

import pytest

from rackwright.domain.attributes import (
    MISSING,
    Layers,
    Source,
    StagedInput,
    Surroundings,
    check_value,
    digest,
    merge,
    nest_at_path,
    read_at_path,
    stage_input,
    without_path,
)
from rackwright.domain.catalogue import Attrib, Catalogue, Json, JsonObject, Role
from rackwright.domain.errors import Invalid


def test_later_layers_win_and_maps_merge_deeply() -> None:
    low: JsonObject = {"a": 1, "deep": {"x": 1, "y": 1}, "list": [1, 2], "map": {"z": 1}}
    high: JsonObject = {"a": 2, "deep": {"y": 2}, "list": [3], "map": 5}
    assert merge(low, high) == {"a": 2, "deep": {"x": 1, "y": 2}, "list": [3], "map": 5}
    assert merge(high, low)["map"] == {"z": 1}


def test_merging_leaves_the_layers_as_they_were() -> None:
    low: JsonObject = {"deep": {"x": 1}}
    merge(low, {"deep": {"x": 2}})
    assert low == {"deep": {"x": 1}}


def test_a_path_is_read_written_and_taken_out() -> None:
    values: JsonObject = {"a": {"b": {"c": None}}, "d": 1}
    assert read_at_path(values, ("a", "b", "c")) is None
    assert read_at_path(values, ("a", "x")) is MISSING
    assert read_at_path(values, ("d", "x")) is MISSING
    assert nest_at_path(("a", "b"), 1) == {"a": {"b": 1}}
    assert without_path(values, ("a", "b", "c")) == {"d": 1}
    assert without_path(values, ("x", "y")) == values


def layers_of(values: dict[str, JsonObject]) -> Layers:
    return Layers(**values)


LAYERS = ("template", "deployment_wall", "committed", "wall", "sysdata", "user")


@pytest.mark.parametrize("number", range(len(LAYERS)))
def test_each_layer_of_a_noderole_wins_over_those_before_it(number: int) -> None:
    layers = layers_of({name: {"value": name} for name in LAYERS[: number + 1]})
    assert layers.merged() == {"value": LAYERS[number]}


def test_without_wall_leaves_out_just_the_noderoles_own_wall() -> None:
    layers = layers_of({name: {name: True} for name in LAYERS})
    assert layers.without_wall() == {name: True for name in LAYERS if name != "wall"}


# --- staging

KNOWN = Catalogue(
    roles={
        "web": Role("web", "test", "hand", wants=("fact", "size", "lost")),
        "pg": Role("pg", "test", "hand", provides=("db",)),
        "db": Role("db", "test", "hand"),
    },
    jigs={},
    attribs={
        attrib.name: attrib
        for attrib in (
            Attrib("fact", "test", ("at", "fact")),
            Attrib("size", "test", ("at", "size"), role="db", default=5, has_default=True),
            Attrib("port", "test", ("at", "port"), role="web", default=80, has_default=True),
        )
    },
)


def staged(role: str = "web", own: Layers | None = None, **around: object) -> StagedInput:
    return stage_input(KNOWN, role, own or Layers(), Surroundings(**around))  # type: ignore[arg-type]  # given by name


def at(staged_input: StagedInput) -> Json:
    return staged_input.input.get("at")


def test_of_the_node_only_what_was_wanted_is_handed_on() -> None:
    assert at(staged(discovery={"at": {"fact": 1, "other": 2}, "more": 3})) == {"fact": 1, "port": 80}


def test_hints_win_over_discovery() -> None:
    assert at(staged(discovery={"at": {"fact": 1}}, hint={"at": {"fact": 2}})) == {"fact": 2, "port": 80}


def test_of_a_linked_parent_only_the_wanted_attrib_is_handed_on() -> None:
    parent = Source("db", {"at": {"size": 7, "secret": 1}})
    assert at(staged(links=(("size", parent),))) == {"size": 7, "port": 80}


def test_an_attrib_a_parent_has_no_value_for_has_its_default() -> None:
    assert at(staged(links=(("size", Source("db", {})),))) == {"size": 5, "port": 80}


def test_ancestors_on_the_node_hand_on_all_their_data_nearest_last() -> None:
    ancestors = (Source("db", {"a": 1, "b": 1}), Source("pg", {"b": 2}))
    handed = staged(ancestors=ancestors).input
    assert (handed["a"], handed["b"]) == (1, 2)


SOURCES: list[tuple[str, dict[str, object]]] = [
    ("discovery", {"discovery": {"at": {"fact": "discovery"}}}),
    ("link", {"links": (("fact", Source("db", {"at": {"fact": "link"}})),)}),
    ("ancestor", {"ancestors": (Source("db", {"at": {"fact": "ancestor"}}),)}),
    ("own", {"own": Layers(template={"at": {"fact": "own"}})}),
]


@pytest.mark.parametrize("number", range(len(SOURCES)))
def test_node_linked_parents_ancestors_own_data_later_wins(number: int) -> None:
    arguments = {key: value for _, source in SOURCES[: number + 1] for key, value in source.items()}
    values = at(staged(**arguments))  # type: ignore[arg-type]  # given by name
    assert isinstance(values, dict)
    assert values["fact"] == SOURCES[number][0]


def test_own_defaults_win_over_ancestors_and_lose_to_own_data() -> None:
    ancestor = Source("db", {"at": {"port": 1}})
    assert at(staged(ancestors=(ancestor,))) == {"port": 80}
    assert at(staged(own=Layers(user={"at": {"port": 2}}), ancestors=(ancestor,))) == {"port": 2}


def test_a_provider_has_the_defaults_of_what_it_provides() -> None:
    assert at(staged("pg")) == {"size": 5}


def test_of_the_hints_only_those_that_were_wanted_are_handed_on() -> None:
    """A machine's BMC password is a hint, too, and no script is told it."""
    hint: JsonObject = {"at": {"fact": 2, "other": 3}, "bmc": {"address": "192.0.2.9", "password": "sesame"}}
    assert staged(hint=hint).input["hints"] == {"at": {"fact": 2}}
    assert "sesame" not in str(staged(hint=hint).input)


def test_quirks_and_members_are_handed_on() -> None:
    member: JsonObject = {"node": "n1", "address": "192.0.2.1"}
    handed = staged("db", quirks=("slow",), members=(member,)).input
    assert (handed["quirks"], handed["cluster"]) == (["slow"], {"members": [member]})
    assert "cluster" not in staged("db").input


def test_the_own_wall_is_handed_on_but_does_not_change_the_hash() -> None:
    before, after = staged(), staged(own=Layers(wall={"seen": 1}))
    assert after.input["seen"] == 1
    assert before.hash == after.hash


@pytest.mark.parametrize("layer", [name for name in LAYERS if name != "wall"])
def test_every_other_layer_changes_the_hash(layer: str) -> None:
    assert staged().hash != staged(own=layers_of({layer: {"x": 1}})).hash


@pytest.mark.parametrize(
    "around",
    [
        {"discovery": {"at": {"fact": 1}}},
        {"hint": {"at": {"fact": 1}}},
        {"quirks": ("slow",)},
        {"links": (("size", Source("db", {"at": {"size": 9}})),)},
        {"ancestors": (Source("db", {"wall": 1}),)},
        {"members": ({"node": "n1"},)},
    ],
    ids=lambda around: next(iter(around)),
)
def test_everything_around_it_changes_the_hash(around: dict[str, object]) -> None:
    assert staged().hash != staged(**around).hash  # type: ignore[arg-type]  # given by name


def test_what_was_not_wanted_of_the_node_does_not_change_the_hash() -> None:
    assert staged().hash == staged(discovery={"other": 1}).hash


def test_the_hash_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": {"c": 2, "d": 3}}) == digest({"b": {"d": 3, "c": 2}, "a": 1})
    assert digest({"a": 1}) != digest({"a": "1"})


# --- what people may set


def test_an_attrib_without_a_schema_is_read_only() -> None:
    with pytest.raises(Invalid, match="'fact' has no schema"):
        check_value(KNOWN.attribs["fact"], 1)


def test_a_value_that_does_not_fit_is_refused_with_a_pointer() -> None:
    schema: JsonObject = {"type": "object", "properties": {"disks": {"items": {"type": "integer"}}}}
    attrib = Attrib("raid", "test", ("raid",), schema=schema)
    check_value(attrib, {"disks": [1, 2]})
    with pytest.raises(Invalid) as refused:
        check_value(attrib, {"disks": [1, "two"]})
    assert refused.value.pointer == "/disks/1"
    assert "'two'" in refused.value.message


def test_a_secret_value_is_not_repeated_when_it_is_refused() -> None:
    attrib = Attrib("password", "test", ("password",), schema={"type": "integer"}, secret=True)
    with pytest.raises(Invalid) as refused:
        check_value(attrib, "hunter2")
    assert "hunter2" not in refused.value.message
