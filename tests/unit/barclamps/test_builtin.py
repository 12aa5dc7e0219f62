"""The barclamps that come with Rackwright: what they must declare, and that no text can upset their parser."""

from functools import cache
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.barclamp_fit import check_fit

from rackwright.barclamps.loader import built_in, known_kinds
from rackwright.domain.barclamps.barclamp_file import BARCLAMP_KEYS, ROLE_KEYS, parse_barclamp
from rackwright.domain.catalogue import Attrib, Barclamp, Catalogue, Flag, Hammer, Jig, Role
from rackwright.domain.errors import BarclampInvalid

ADMIN, MANAGED, INSTALLED = "crowbar-admin-node", "crowbar-managed-node", "crowbar-installed-node"
JOINED, SSH = "crowbar-joined-node", "ssh-access"


def catalogue(test: bool) -> Catalogue:
    return Catalogue.of(built_in(test))


def declared(barclamp: Barclamp) -> list[Role | Jig | Hammer | Attrib]:
    return [*barclamp.roles, *barclamp.jigs, *barclamp.hammers, *barclamp.attribs]


def closure(known: Catalogue, name: str) -> set[str]:
    needs: set[str] = set()
    stack = list(known.needed_roles(name))
    while stack:
        need = stack.pop()
        if need not in needs:
            needs.add(need)
            stack.extend(known.needed_roles(need))
    return needs


def test_core_comes_first_and_test_only_on_request() -> None:
    names = [barclamp.name for barclamp in built_in()]
    assert names[0] == "core"
    assert "test" not in names
    assert "test" in [barclamp.name for barclamp in built_in(test=True)]


@pytest.mark.parametrize("test", [False, True])
def test_built_in_barclamps_fit_together(test: bool) -> None:
    check_fit(built_in(test))


def test_built_in_barclamps_are_in_folders_of_their_names() -> None:
    for barclamp in built_in(test=True):
        assert Path(barclamp.path).name == barclamp.name


def test_only_the_admin_node_has_bootstrap_and_only_the_managed_node_discovery() -> None:
    known = catalogue(test=False)
    assert known.roles_with_flag(Flag.BOOTSTRAP) == (ADMIN,)
    assert known.roles_with_flag(Flag.DISCOVERY) == (MANAGED,)


def test_discovery_brings_ssh_access() -> None:
    assert SSH in closure(catalogue(test=False), MANAGED)


def test_installed_node_is_a_managed_node() -> None:
    assert MANAGED in closure(catalogue(test=False), INSTALLED)


def test_joined_node_stands_in_for_managed_and_installed_without_being_their_kin() -> None:
    known = catalogue(test=False)
    assert known.stand_ins(JOINED) == {MANAGED, INSTALLED}
    assert closure(known, JOINED).isdisjoint({MANAGED, INSTALLED})
    assert JOINED not in closure(known, MANAGED) | closure(known, INSTALLED)


def test_what_is_said_of_a_node_is_said_on_that_node() -> None:
    known = catalogue(test=False)
    assert {MANAGED, INSTALLED, JOINED, SSH} <= set(known.roles_with_flag(Flag.IMPLICIT))
    assert ADMIN not in known.roles_with_flag(Flag.IMPLICIT)


def test_core_declares_the_script_jig_with_a_client_role_of_another_jig() -> None:
    known = catalogue(test=False)
    assert {"noop", "role-provided", "simulate", "script"} <= set(known.jigs)
    assert known.jigs["script"].client_role == SSH
    assert known.roles[SSH].jig != "script"


def test_every_jig_and_parent_that_a_built_in_names_is_there() -> None:
    known = catalogue(test=True)
    names = {barclamp.name for barclamp in built_in(test=True)}
    assert {role.jig for role in known.roles.values()} <= set(known.jigs)
    assert {barclamp.parent for barclamp in built_in(test=True)} <= names | {None}


def test_every_role_a_built_in_names_is_there_but_the_one_that_must_not_be() -> None:
    known = catalogue(test=True)
    named = {
        name
        for role in known.roles.values()
        for name in (*role.requires, *role.attaches, *role.provides, *role.conflicts)
    }
    assert named - set(known.roles) == {"test-not-imported"}
    assert {want for role in known.roles.values() for want in role.wants} <= set(known.attribs)


def test_everything_built_in_says_what_it_is_for() -> None:
    for barclamp in built_in(test=True):
        assert [item.name for item in declared(barclamp) if not item.description] == []
        assert barclamp.description


# --- the test barclamp -------------------------------------------------------------------------------------------


def the_test_barclamp() -> Barclamp:
    return next(barclamp for barclamp in built_in(test=True) if barclamp.name == "test")


def test_test_barclamp_prefixes_all_its_names() -> None:
    barclamp = the_test_barclamp()
    assert [item.name for item in declared(barclamp) if not item.name.startswith("test-")] == []


def test_test_barclamp_does_all_its_work_by_noop() -> None:
    known = catalogue(test=True)
    assert {known.jigs[role.jig].kind for role in the_test_barclamp().roles} == {"noop"}


@pytest.mark.parametrize("flag", Flag)
def test_test_barclamp_has_a_role_for_each_flag(flag: Flag) -> None:
    assert f"test-{flag}" in catalogue(test=True).roles_with_flag(flag)


def test_test_barclamp_has_each_relation_between_roles() -> None:
    known = catalogue(test=True)
    assert known.rivals("test-conflict-silent") == {"test-conflict-says"}
    assert known.providers("test-provided") == ("test-provider",)
    assert known.providers("test-abstract") == ("test-concrete",)
    assert "test-attached" in known.needed_roles("test-host")
    assert "test-client" in known.needed_roles("test-remote-worker")
    assert "test-lineage-start" in closure(known, "test-lineage-end") & known.stand_ins("test-lineage-end")


def test_test_barclamp_wants_an_attrib_of_each_source() -> None:
    known = catalogue(test=True)
    wanted = [known.attribs[want] for want in known.roles["test-wanting"].wants]
    assert {source(known, attrib) for attrib in wanted} == {
        "node, read only",
        "node, hint",
        "node, default",
        "parent, default",
        "parent, template",
        "parent, secret",
        "parent, run",
    }
    assert "test-parent" in known.needed_roles("test-wanting")
    assert "test-provided-value" in [attrib.name for attrib in known.attribs_of("test-provider")]


def source(known: Catalogue, attrib: Attrib) -> str:
    """Return where a value of the attrib comes from if nobody sets one, or who may set it."""
    if attrib.role is None:
        return "node, default" if attrib.has_default else "node, hint" if attrib.schema else "node, read only"
    if attrib.secret:
        return "parent, secret"
    below = known.roles[attrib.role].template.get(attrib.map[0])
    if isinstance(below, dict) and attrib.map[1] in below:
        return "parent, template"
    return "parent, default" if attrib.has_default else "parent, run"


# --- no text upsets the parser -----------------------------------------------------------------------------------


def judged(text: str) -> None:
    """Check that a text is parsed, or refused with a line that it has; anything else is a bug."""
    line = 1
    try:
        parse_barclamp(text, "f", known_kinds())
    except BarclampInvalid as refused:
        line = refused.line
    # Other characters than \n end a line too, for YAML and for Python.
    assert 1 <= line <= len(text.splitlines()) + 1


@settings(deadline=None)  # a busy machine is no bug
@given(st.text())
@example("name: x\n\0")
@example("\ud800")
@example("name: x\ntemplate: " + "[" * 5000)
@example("name: x\nroles: " + "{a: " * 5000)
@example("%YAML 9.9\n--- x")
@example("? [a, b]\n: c")
@example("name: x\n...\n")
@example('name: "\\U00110000"')
@example("name: x\ndisplay: " + "9" * 5000)
@example("name: x\ndisplay: 0x" + "f" * 5000)
@example("name: x\nattribs: [{name: a, map: a, schema: {pattern: '" + "(" * 5000 + ")" * 5000 + "'}}]")
def test_any_text_is_parsed_or_refused(text: str) -> None:
    judged(text)


@cache
def lines_of_the_built_in() -> list[str]:
    return [
        line
        for barclamp in built_in(test=True)
        for line in Path(barclamp.path, "barclamp.yml").read_text().splitlines()
    ]


@settings(deadline=None)  # a busy machine is no bug
@given(
    st.lists(st.integers(0, 10_000), min_size=1, max_size=20),
    st.integers(0, 500),
    st.text(alphabet="\t \n:-[]{}'\"&*!|>%@#,?~a0.", max_size=4),
)
def test_any_shuffle_of_real_lines_is_parsed_or_refused(picks: list[int], place: int, noise: str) -> None:
    lines = lines_of_the_built_in()
    text = "name: x\nroles:\n" + "\n".join(lines[pick % len(lines)] for pick in picks)
    judged(text[:place] + noise + text[place:])


FLAGS = [flag.value for flag in Flag]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from([*ROLE_KEYS, *FLAGS, "a"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*BARCLAMP_KEYS, *ROLE_KEYS, "map", "schema", "default"]), inner, max_size=5)
    ),
    max_leaves=12,
)


@settings(deadline=None)  # a busy machine is no bug
@given(st.dictionaries(st.sampled_from(BARCLAMP_KEYS), json_values), json_values, json_values)
def test_any_shape_of_values_is_parsed_or_refused(top: dict[str, object], schema: object, default: object) -> None:
    attrib = {"name": "a", "map": "a", "schema": schema, "default": default}
    judged(yaml.safe_dump({"name": "x", **top}))
    judged(yaml.safe_dump({"name": "x", "attribs": [attrib]}))
