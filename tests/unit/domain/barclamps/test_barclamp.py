"""Barclamp files: what is accepted, and for each mistake its line and the reason a person reads.

Each file in `barclamps/bad` is one mistake; its first line says where it is and part of what must be said of it.
"""

import re
from pathlib import Path

import pytest

from rackwright.domain.barclamps.barclamp_file import KnownKinds, parse_barclamp
from rackwright.domain.barclamps.marked_values import MAX_CHARACTERS
from rackwright.domain.catalogue import Attrib, Barclamp, Catalogue, Flag, Hammer, Jig, Json, Role
from rackwright.domain.errors import BarclampInvalid, Conflict, Rule

BAD = sorted((Path(__file__).parent / "bad").glob("*.yml"))
KINDS = KnownKinds(jigs=("noop", "script", "state"), hammers=("redfish", "ipmi", "ssh", "qemu"))
EXPECTED = re.compile(r"# line (?P<line>\d+): (?P<part>.+)")


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.stem)
def test_mistake_is_shown_with_its_line_and_reason(case: Path) -> None:
    text = case.read_text()
    expected = EXPECTED.match(text)
    assert expected, "the first line must be: # line N: part of the message"
    with pytest.raises(BarclampInvalid) as refused:
        parse_barclamp(text, "x/barclamp.yml", KINDS)
    assert expected["part"] in refused.value.reason
    assert refused.value.line == int(expected["line"])
    assert refused.value.message.startswith(f"x/barclamp.yml:{expected['line']}: ")


def test_cases_of_mistakes_are_found() -> None:
    assert len(BAD) > 80


FULL = """
name: web
display: Web servers
description: Serves pages
version: "1.10"
parent: core
jigs:
  - {name: remote, kind: script, description: Over SSH, active: false, client_role: remote-access}
hammers:
  - {name: redfish, kind: redfish, priority: -5, description: BMC}
roles:
  - name: web-server
    jig: remote
    description: |
      One line.
      Another.
    requires: [crowbar-installed-node]
    attaches: [web-farm]
    wants-attribs: [dns-domain]
    provides: [http]
    conflicts: [proxy]
    flags: [milestone, cluster]
    template: {web: {port: 8080, names: [a, "1", yes, 12:30], ratio: .5, mode: 0o755, none: ~}}
    deadline: 90
    attribs:
      - name: web-port
        map: web/port
        description: Where it listens
        schema: {type: integer, minimum: 1}
        default: 80
      - {name: web-key, map: web/key, secret: true, schema: {type: string}}
  - {name: remote-access, jig: noop, flags: [implicit]}
attribs:
  - {name: rack, map: place/rack, default: null}
"""


def test_every_key_reaches_its_value() -> None:
    template: Json = {"port": 8080, "names": ["a", "1", "yes", "12:30"], "ratio": 0.5, "mode": 0o755, "none": None}
    assert parse_barclamp(FULL, "f", KINDS) == Barclamp(
        name="web",
        display="Web servers",
        description="Serves pages",
        version="1.10",
        parent="core",
        jigs=(Jig("remote", "web", "script", "Over SSH", False, "remote-access"),),
        hammers=(Hammer("redfish", "web", "redfish", -5, "BMC"),),
        roles=(
            Role(
                name="web-server",
                barclamp="web",
                jig="remote",
                description="One line.\nAnother.\n",
                requires=("crowbar-installed-node",),
                attaches=("web-farm",),
                wants=("dns-domain",),
                provides=("http",),
                conflicts=("proxy",),
                flags=frozenset({Flag.MILESTONE, Flag.CLUSTER}),
                template={"web": template},
                deadline=90.0,
            ),
            Role(name="remote-access", barclamp="web", jig="noop", flags=frozenset({Flag.IMPLICIT})),
        ),
        attribs=(
            Attrib(
                name="web-port",
                barclamp="web",
                map=("web", "port"),
                role="web-server",
                description="Where it listens",
                schema={"type": "integer", "minimum": 1},
                default=80,
                has_default=True,
            ),
            Attrib("web-key", "web", ("web", "key"), role="web-server", schema={"type": "string"}, secret=True),
            Attrib("rack", "web", ("place", "rack"), has_default=True),
        ),
    )


def test_name_alone_is_a_barclamp_displayed_by_its_name() -> None:
    assert parse_barclamp("name: x\n", "f", KINDS) == Barclamp(name="x", display="x")


def test_byte_order_mark_is_no_part_of_the_first_key() -> None:
    assert parse_barclamp("\ufeffname: x\n", "f", KINDS).name == "x"


def test_kind_of_a_jig_or_hammer_is_its_name_unless_said() -> None:
    parsed = parse_barclamp("name: x\njigs: [{name: noop}]\nhammers: [{name: ssh}]\n", "f", KINDS)
    assert (parsed.jigs[0].kind, parsed.hammers[0].kind) == ("noop", "ssh")


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (
            "jigs:\n  - name: j\n    kind: scirpt",
            4,
            "no kind 'scirpt' for jig 'j'; did you mean 'script'? The kinds are: ",
        ),
        ("jigs:\n  - {name: ansible}", 3, "no kind 'ansible' for jig 'ansible'. The kinds are: noop, "),
        (
            "hammers:\n  - {name: h, kind: ilo}",
            3,
            "no kind 'ilo' for hammer 'h'. The kinds are: redfish, ipmi, ssh, qemu.",
        ),
    ],
)
def test_kind_that_nobody_implements_is_refused_with_those_that_there_are(text: str, line: int, reason: str) -> None:
    with pytest.raises(BarclampInvalid, match=re.escape(reason)) as refused:
        parse_barclamp(f"name: x\n{text}\n", "f", KINDS)
    assert refused.value.line == line


def test_role_may_require_one_of_another_file() -> None:
    assert parse_barclamp("name: x\nroles: [{name: a, jig: elsewhere, requires: [b]}]\n", "f", KINDS).roles[
        0
    ].requires == ("b",)


def test_schema_may_name_the_dialect_it_is_written_in() -> None:
    schema = "{$schema: 'https://json-schema.org/draft/2020-12/schema', $comment: short, type: string}"
    assert parse_barclamp(f"name: x\nattribs: [{{name: a, map: a, schema: {schema}}}]\n", "f", KINDS).attribs[0].schema


def test_lone_surrogate_is_refused_with_its_line() -> None:
    with pytest.raises(BarclampInvalid, match=r"U\+D800") as refused:
        parse_barclamp("name: x\ndescription: \ud800\n", "f", KINDS)
    assert refused.value.line == 2


def test_text_over_the_limit_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(BarclampInvalid, match="larger than 4 MiB"):
        parse_barclamp("[" * (MAX_CHARACTERS + 1), "f", KINDS)


def test_long_chain_of_requires_is_no_cycle() -> None:
    roles = "".join(f"- {{name: r{i}, jig: noop, requires: [r{i + 1}]}}\n" for i in range(3000))
    assert len(parse_barclamp(f"name: x\nroles:\n{roles}", "f", KINDS).roles) == 3000


def parsed(text: str) -> Barclamp:
    return parse_barclamp(text, "f", KINDS)


@pytest.mark.parametrize(
    ("first", "second", "rule", "message"),
    [
        (
            "name: x\nroles: [{name: a, jig: noop, requires: [b]}]",
            "name: y\nroles: [{name: b, jig: noop, requires: [a]}]",
            Rule.CYCLE,
            "a -> b -> a",
        ),
        (
            "name: x\njigs: [{name: j, kind: noop, client_role: c}]",
            "name: y\nroles: [{name: c, jig: noop}]",
            Rule.BARCLAMP,
            "must have the flag implicit",
        ),
    ],
    ids=["circle of roles", "client role"],
)
def test_conflict_between_files_names_both(first: str, second: str, rule: Rule, message: str) -> None:
    with pytest.raises(Conflict) as refused:
        Catalogue.of([parsed(first), parsed(second)]).check()
    assert message in refused.value.message
    assert refused.value.rule == rule


def test_files_that_only_lean_on_each_other_are_fine_together() -> None:
    Catalogue.of(
        [
            parsed("name: x\nroles: [{name: a, jig: noop, requires: [b, not-imported], attribs: [{name: p, map: p}]}]"),
            parsed("name: y\nparent: x\nroles: [{name: b, jig: noop, attribs: [{name: q, map: p}]}]"),
        ]
    ).check()
