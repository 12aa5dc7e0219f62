"""What is refused of user-data before a machine is touched, with its line and reason."""

import json

import pytest
import yaml

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.installs.cloud_init import part, yaml_document
from rackwright.domain.installs.cloud_init.part import check_cloud_init, make_first_boot
from rackwright.domain.installs.cloud_init.schema import SchemaFault, find_schema_faults
from rackwright.domain.installs.cloud_init.secret_references import REFERENCE
from rackwright.domain.installs.cloud_init.seed import CONFIG, SEED
from rackwright.domain.installs.cloud_init.yaml_document import YamlValue
from rackwright.domain.installs.request import CloudInitSchema, InstallPart, InstallRequest
from rackwright.domain.installs.resolve import resolve_install

TEXT: JsonObject = {"type": "string"}
USER: JsonObject = {"type": "object", "properties": {"name": TEXT, "passwd": TEXT}, "additionalProperties": False}
SCHEMA: JsonObject = {
    "$schema": "http://json-schema.org/draft-04/schema#",
    "$defs": {
        "users": {
            "type": "object",
            "properties": {
                "users": {"type": "array", "items": {"oneOf": [TEXT, USER]}},
                "package_update": {"type": "boolean"},
                "old": {"anyOf": [{"type": "string", "deprecated": True, "description": "Use new."}, {"type": "null"}]},
                "until": {"type": "string", "format": "date"},
                "content": TEXT,
            },
        }
    },
    "allOf": [{"$ref": "#/$defs/users"}],
}
IMAGE = CloudInitSchema("debian-12", json.dumps(SCHEMA))


def check(text: str, image: CloudInitSchema | None = IMAGE, **settings: object) -> InstallPart:
    given = InstallRequest("n1", {"user_data": text, **settings}, cloud_init=image)  # type: ignore[dict-item]
    return check_cloud_init(given)


def refusals(text: str, image: CloudInitSchema | None = IMAGE, **settings: object) -> list[str]:
    problems = check(text, image, **settings).problems
    prefix = "provisioner-user-data, "
    return [str(problem).removeprefix(prefix) for problem in problems]


GOOD = (
    "#cloud-config\npackage_update: yes\n",
    "#cloud-config\nusers:\n- default\n- {name: x, passwd: '5'}\n",
    "#cloud-config\nusers: &u [{name: x}]\nothers: *u\n",
    "#cloud-config\nbase: &b {name: x}\nusers: [{<<: *b, passwd: y}]\n",
    "#cloud-config\ncontent: !!binary aGVsbG8=\n",
    "#cloud-config\nuntil: '2030-01-31'\n",
    "#!/bin/sh\necho hello\n",
)
BAD = {
    "#cloud-config\npackage_update: maybe\n": "line 2: package_update: 'maybe' is not of type 'boolean'",
    "#cloud-config\n\nusers:\n- name: x\n  passwd: 5\n": "users.0.passwd: 5 is not of type 'string'",
    "#cloud-config\nuntil: 2030-01-31\n": "line 2: until: datetime.date(2030, 1, 31) is not of type 'string'",
    "#cloud-config\nuntil: tomorrow\n": "line 2: until: 'tomorrow' is not a 'date'",
    "#cloud-config\na: b: c\n": "line 2: this is no valid YAML",
    "#cloud-config\n- a\n": "line 2: a #cloud-config is a mapping",
    "#cloud-config\n": "line 1: a #cloud-config is a mapping",
    "#cloud-config\na: 1\nb: 2\na: 3\n": "line 4: the key 'a' is here twice; the first is on line 2",
    "#cloud-config\n1: 2\n": "line 2: the key '1' is not text",
    "#cloud-config\na: 1\n---\nb: 2\n": "line 3: a second document",
    "#cloud-config\na: !!python/object:os.system x\n": "line 2: the tag",
    "#cloud-config\na: 2030-13-45\n": "line 2: '2030-13-45' is no timestamp",
    "#cloud-config\na: " + "1" * 5000 + "\n": "is no int",
    "#cloud-config\na: *b\n": "line 2: the alias *b has no anchor",
    "#cloud-config\na: &a [*a]\n": "line 2: the alias *a is within",
    "#cloud-config\na: {<<: 5}\n": "line 2: << takes a mapping",
    "#cloud-config\na: " + "[" * 40 + "]" * 40 + "\n": "deeper than 32",
    "#cloud-config\na: x\x07y\n": "line 2: the character U+0007",
    "#cloud-config\nssh_deletekeys: true\n": "line 2: ssh_deletekeys: the server knows the machine by",
    "#cloud-config\nx: 1\nssh_keys: {rsa_private: x}\n": "line 3: ssh_keys",
    "#cloud-config\ndisable_root: yes\n": "line 2: disable_root: the server logs in as root",
    "#cloud-config\npower_state:\n  mode: poweroff\n": "line 3: power_state.mode: an install ends when",
    "hello\n": "line 1: the first line is #cloud-config",
    "#cloud-config-archive\n- x\n": "line 1: archives are not taken",
    "#include\nhttp://example.com/\n": "line 1: an #include is put together on the machine",
    "## template: jinja\n#cloud-config\n": "line 1: a template is put together on the machine",
    "Content-Type: multipart/mixed\n": "line 1: multipart MIME is not taken",
    "MIME-Version: 1.0\n": "line 1: multipart MIME is not taken",
    "#cloud-boothook\nx": "line 1: boot hooks are not taken",
    "#part-handler\nx": "line 1: what a part handler makes",
    "#cloud-config\n" + "#" * 140_000: "line 1: user-data has more than 131072 characters",
}


@pytest.mark.parametrize("text", GOOD)
def test_what_cloud_init_takes_is_taken(text: str) -> None:
    assert refusals(text) == []


@pytest.mark.parametrize(("text", "named"), BAD.items(), ids=range(len(BAD)))
def test_a_mistake_is_named_with_its_line(text: str, named: str) -> None:
    reasons = refusals(text)
    assert any(named in reason for reason in reasons), reasons
    assert all(len(reason) < 600 for reason in reasons)


def test_the_line_of_a_wrong_value_is_its_own_and_not_that_of_the_list_it_is_in() -> None:
    assert refusals("#cloud-config\n\nusers:\n- name: x\n  passwd: 5\n")[0].startswith("line 5: users.0: ")


def test_a_bomb_of_aliases_is_refused_before_it_goes_off() -> None:
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 12))
    assert any(
        "stands for more than 10000 values" in reason for reason in refusals(f"#cloud-config\nl0: &l0 x\n{levels}")
    )
    merged = "".join(
        f"l{n}: &l{n} {{a: {{<<: *l{n - 1}}}, b: {{<<: *l{n - 1}}}, c: {{<<: *l{n - 1}}}}}\n" for n in range(1, 12)
    )
    assert any("more than 10000 values" in reason for reason in refusals(f"#cloud-config\nl0: &l0 {{x: y}}\n{merged}"))


ENTRIES = ", ".join(f"k{number}: x" for number in range(4000))
MANY = f"#cloud-config\na: &a {{{ENTRIES}}}\n"
BOMBS = {
    "merged at once": MANY + f"b: {{<<: [{', '.join(['*a'] * 20_000)}]}}\n",
    "merged again and again": MANY + "b:\n" + "- <<: *a\n" * 8000,
    "merged level by level": MANY + "b: " + "{<<: " * 25 + "*a" + "}" * 25,
    "texts": f"#cloud-config\na: &a {'x' * 60_000}\nb: [{', '.join(['*a'] * 9000)}]\n",
    "keys": f"#cloud-config\na: {{? {'x' * 2000} : 1}}\n",
    "values without aliases": "#cloud-config\na: [" + "1," * 60_000 + "]\n",
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_a_bomb_takes_no_more_steps_than_its_size(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = 0
    setdefault_all = yaml_document._DocumentReader._merge

    def count(self: yaml_document._DocumentReader, mapping: YamlValue, source: YamlValue) -> None:
        nonlocal copied
        setdefault_all(self, mapping, source)
        copied += len(source.value) if isinstance(source.value, dict) else 0

    monkeypatch.setattr(yaml_document._DocumentReader, "_merge", count)
    [reason] = refusals(text)
    assert "more than" in reason
    assert copied <= 2 * yaml_document.MOST_VALUES


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("&a {b: c}\nd: {*a : 1}", "a key is text"),
        ("&a [b]\nd: {*a : 1}", "a key is text"),
        ("&a 1\nd: {*a : 1}", "the key '1' is not text"),
        ("{!!binary aGVsbG8= : 1}", "is not text"),
        ("{null: 1}", "is not text"),
        ("0x" + "f" * 10_000, "is no int"),
        ("1" + ":1" * 10_000, "is no int"),
        ("1" + "_" * 10_000 + ".5", "is no float"),
    ],
)
def test_keys_that_are_no_text_and_numbers_that_are_too_long_are_refused(line: str, reason: str) -> None:
    assert any(reason in found for found in refusals(f"#cloud-config\na: {line}\n"))


def test_a_line_full_of_beginnings_of_references_is_searched_once() -> None:
    assert REFERENCE.findall("${secret:" * 3 + "name} ${secret:} ${secret:a$b}") == ["name", "", "a$b"]
    steps = "${secret:" * 13_000
    assert refusals(f"#!/bin/sh\n{steps}\n") == []


def test_user_data_is_judged_once_for_all_machines_that_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []

    def note(schema: str, document: YamlValue) -> list[SchemaFault]:
        judged.append(schema)
        return find_schema_faults(schema, document)

    monkeypatch.setattr(part, "find_schema_faults", note)
    part.judge_user_data.cache_clear()
    for number in range(50):
        text = f"#cloud-config\nusers: ['{number % 2} ${{secret:a}}']\n"
        given = InstallRequest(f"n{number}", {"user_data": text, "secrets": {}}, cloud_init=IMAGE)
        assert len(check_cloud_init(given).problems) == 1
    assert len(judged) == 2


def _fanning_out() -> JsonObject:
    """A schema of 30 levels, each of which refers to the next two times."""
    levels: JsonObject = {
        f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}, {"$ref": f"#/$defs/l{n + 1}"}]} for n in range(30)
    }
    return {"$defs": {**levels, "l30": {}}, "$ref": "#/$defs/l0"}


HOSTILE: list[JsonObject] = [
    _fanning_out(),
    {"properties": {"a": {"pattern": r"^(x)\1$"}}},
    {"patternProperties": {"a(?=b)": {}}},
    {"properties": {"a": {"pattern": "("}}},
    {"anyOf": [{"type": "string"}] * 100_000},
    {"properties": {f"p{number}": {} for number in range(1000)}, "additionalProperties": {"items": {"$ref": "#"}}},
    {"patternProperties": {f"p{number}": {} for number in range(100_000)}},
]


@pytest.mark.parametrize("schema", HOSTILE, ids=range(len(HOSTILE)))
def test_a_schema_that_means_harm_is_refused(schema: JsonObject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackwright.domain.installs.cloud_init.schema.MOST_STEPS", 100_000)
    document = {"a": "x" * 200, "b": [{}] * 1000}
    [reason] = refusals(f"#cloud-config\n{json.dumps(document)}\n", CloudInitSchema("mine", json.dumps(schema)))
    assert "cannot be used" in reason


@pytest.mark.parametrize(
    "schema", [{"properties": {"a": {"pattern": "^(x+x+)+y$"}}}, {"patternProperties": {"^(a|a)+$": {"type": "null"}}}]
)
def test_a_pattern_on_which_python_would_not_end_is_searched(schema: JsonObject) -> None:
    [reason] = refusals(f"#cloud-config\na: {'x' * 3000}\n", CloudInitSchema("mine", json.dumps(schema)))
    assert "line 2: a" in reason


def test_patterns_that_take_too_long_on_a_text_are_told() -> None:
    schema: JsonObject = {"properties": {"a": {"pattern": "(.{0,200}x){0,4}y"}}}
    [reason] = refusals(f"#cloud-config\na: {'x' * 100_000}\n", CloudInitSchema("mine", json.dumps(schema)))
    assert "take too long" in reason


def test_what_is_deprecated_is_noted_and_not_refused() -> None:
    checked = check("#cloud-config\nold: x\n")
    assert checked.problems == ()
    assert [str(note) for note in checked.notes] == ["provisioner-user-data, line 2: old: is deprecated: Use new."]


def test_an_image_without_cloud_init_is_named_with_how_to_build_one_that_has_it() -> None:
    [reason] = refusals("#!/bin/sh\n", CloudInitSchema("mine", None))
    assert reason.endswith("the image of mine has no cloud-init. Build one that has it: rackwright image build mine")
    assert refusals("#!/bin/sh\n", None) == [], "of simulated machines no image is known"


@pytest.mark.parametrize("schema", ["", "[]", '{"$ref": "#/nowhere"}', '{"$ref": "#"}', '{"$ref": "http://x/y"}'])
def test_a_schema_that_cannot_be_used_refuses_the_install(schema: str) -> None:
    [reason] = refusals("#cloud-config\na: 1\n", CloudInitSchema("mine", schema))
    assert "the schema of cloud-init in the image of mine cannot be used" in reason


def test_a_reference_to_no_secret_is_named_with_those_that_there_are() -> None:
    text = "#cloud-config\ncontent: ab ${secret:db} ${secret:x y}\n# ${secret:in-a-comment}\n"
    assert refusals(text, secrets={"web": "1", "api": "2"}) == [
        "line 2: provisioner-secrets has no secret db; there are api, web",
        "line 2: 'x y' is no name of a secret",
    ]
    assert refusals("#!/bin/sh\n\necho ${secret:db}\n") == ["line 3: provisioner-secrets has no secret db"]
    assert any("within a value" in reason for reason in refusals("#cloud-config\n'${secret:db}': 1\n"))


def test_meta_data_without_user_data_and_an_instance_id_that_is_no_text_are_refused() -> None:
    assert str(check("", meta_data={"a": 1}).problems[0]).startswith("provisioner-meta-data: it is for cloud-init")
    [problem] = check("#!/bin/sh\n", meta_data={"instance-id": 5}).problems
    assert str(problem) == "provisioner-meta-data: instance-id is text"
    assert check("").problems == ()


def test_nothing_of_it_is_told_to_the_installer() -> None:
    settings: JsonObject = {"user_data": "#!/bin/sh\n# private-thing\n", "secrets": {"db": "hunter2"}}
    facts: JsonObject = {"disks": [{"name": "sda", "bytes": 8 << 30}]}
    without = resolve_install(InstallRequest("n1", facts=facts))
    resolved = resolve_install(InstallRequest("n1", settings, facts, cloud_init=IMAGE))
    assert resolved.problems == ()
    assert resolved.config == without.config


def seed_of(settings: JsonObject) -> dict[str, str]:
    first_boot = make_first_boot("n1.example", "rackwright-7", settings)
    assert first_boot is not None
    return {file.path: file.content for file in first_boot.make_files()}


def test_user_data_is_given_just_as_it_was_written() -> None:
    text = "#cloud-config\n# a comment\nusers: &u [{name: x}]\nothers: *u\n"
    seed = seed_of({"user_data": text})
    assert seed[f"{SEED}/user-data"] == text
    assert seed[f"{SEED}/meta-data"] == "instance-id: rackwright-7\nlocal-hostname: n1.example\n"
    assert "ssh_deletekeys: false\n" in seed[CONFIG]
    assert "network: {config: disabled}\n" in seed[CONFIG]
    assert make_first_boot("n1", "i", {}) is None


def test_meta_data_of_people_counts_more_than_ours() -> None:
    seed = seed_of({"user_data": "#!/bin/sh\n", "meta_data": {"instance-id": "mine", "rack": {"row": 5}}})
    assert seed[f"{SEED}/meta-data"] == "instance-id: mine\nlocal-hostname: n1.example\nrack:\n  row: 5\n"


NASTY = "a: b\n- 'c' \"d\" #e ${secret:other} {{f}} \\1 \u00e4 yes"


def test_whatever_a_secret_holds_it_stays_one_value() -> None:
    text = (
        "#cloud-config\nuntil: 2030-01-31\nmode: 0644\n"
        "deep: {a: ['${secret:db}', 'x${secret:db}y']}\nb: !!binary aGk=\n"
    )
    seed = seed_of({"user_data": text, "secrets": {"db": NASTY, "other": "no"}})
    rendered = seed[f"{SEED}/user-data"]
    assert rendered.startswith("#cloud-config\n")
    expected = yaml.safe_load(text)
    expected["deep"] = {"a": [NASTY, f"x{NASTY}y"]}
    assert yaml.safe_load(rendered) == expected


def test_a_script_has_the_secret_in_its_place() -> None:
    seed = seed_of({"user_data": "#!/bin/sh\nset '${secret:db}' ${secret:none}\n", "secrets": {"db": "\\1 x"}})
    assert seed[f"{SEED}/user-data"] == "#!/bin/sh\nset '\\1 x' ${secret:none}\n"


def test_what_secrets_add_in_all_is_bounded_before_a_machine_is_touched() -> None:
    text = "#cloud-config\nruncmd:\n" + "- echo ${secret:large}\n" * 20
    assert refusals(text, secrets={"large": 13_000}) == []
    assert refusals(text, secrets={"large": 14_000}) == [
        "line 21: the secrets that it refers to have more than 262144 characters in all"
    ]


def test_only_the_names_of_secrets_are_looked_at_while_planning() -> None:
    sealed = {"$sealed": "1:x", "fingerprint": "y"}
    assert refusals("#!/bin/sh\n${secret:fingerprint}\n", secrets=sealed) == [
        "line 2: provisioner-secrets has no secret fingerprint"
    ]
