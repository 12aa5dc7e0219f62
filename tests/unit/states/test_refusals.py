"""What bad input gets: a refusal that names file, line, state and the nearest right name, with nothing run."""

import pytest
from tests.support.waiting import PATIENCE

from .conftest import Refusal

CASES = {
    "missing target with a near name": (
        "a:\n  test.nop:\n    - require:\n      - test: serivce\nservice:\n  test.nop\n",
        "init.sls:4: require: in 'a': no state test: 'serivce' in this run; did you mean 'service'?",
    ),
    "target of another module": (
        "a:\n  test.nop:\n    - require:\n      - cmd: b\nb:\n  test.nop\n",
        "init.sls:4: require: in 'a': no state cmd: 'b' in this run; did you mean 'test: b'?",
    ),
    "second bare requisite": (
        "a:\n  test.nop:\n    - require:\n      - b\n      - c\nb:\n  test.nop\n",
        "init.sls:5: require: in 'a': no state id: 'c' in this run",
    ),
    "dotted key": (
        "a:\n  test.nop:\n    - watch:\n      - test.nop: b\nb:\n  test.nop\n",
        "init.sls:4: watch: in 'a': the requisite key 'test.nop' has a dot; did you mean 'test'?",
    ),
    "cycle": (
        "a:\n  test.nop:\n    - require:\n      - test: b\nb:\n  test.nop:\n    - watch:\n      - test: c\n"
        "c:\n  test.nop:\n    - require:\n      - test: a\n",
        "init.sls:2: the requisites form a cycle: 'a' (init.sls:2) require 'b', 'b' (init.sls:6) watch 'c', "
        "'c' (init.sls:10) require 'a'",
    ),
    "unknown module": (
        "a:\n  tset.nop\n",
        "init.sls:1: 'a': there is no module 'tset'; did you mean 'test'?",
    ),
    "unknown function": (
        "a:\n  test.nopp: []\n",
        "init.sls:2: 'a': the module 'test' has no function 'nopp'; did you mean 'nop'?",
    ),
    "unknown argument": (
        "a:\n  cmd.run:\n    - name: x\n    - runsa: root\n",
        "init.sls:4: 'a': cmd.run has no argument 'runsa'; did you mean 'runas'?",
    ),
    "near miss of a requisite": (
        "a:\n  test.nop:\n    - requires:\n      - test: b\nb:\n  test.nop\n",
        "init.sls:3: 'a': test.nop has no argument 'requires'; did you mean 'require'?",
    ),
    "wrong type": (
        "a:\n  cmd.run:\n    - timeout: soon\n",
        "init.sls:3: 'a': cmd.run argument 'timeout' must be a number, not 'soon'",
    ),
    "missing argument": (
        "a:\n  test.show_notification: []\n",
        "init.sls:2: 'a': test.show_notification needs the argument 'text'",
    ),
    "bad order": (
        "a:\n  test.nop:\n    - order: soon\n",
        "init.sls:3: 'a': order: takes a number, `first` or `last`, not 'soon'",
    ),
    "bad retry": (
        "a:\n  test.nop:\n    - retry:\n        attemps: 3\n",
        "init.sls:3: 'a': retry: has no 'attemps'; did you mean 'attempts'?",
    ),
    "condition that is no command": (
        "a:\n  test.nop:\n    - unless:\n      - fun: x\n",
        "init.sls:3: 'a': unless: takes shell commands: one text or a list of them",
    ),
    "two states of one module under one ID": (
        "a:\n  test.nop: []\n  test.fail_with_changes: []\n",
        "init.sls:3: the ID 'a' has two states of the module 'test'; give one of them an ID of its own",
    ),
    "colon without arguments": (
        "a:\n  test.nop:\n",
        "init.sls:2: 'test.nop' in 'a' ends in a colon but has no arguments; leave the colon out",
    ),
    "number as an ID": ("5:\n  test.nop\n", "init.sls:1: the ID 5 is a int; put it in quotes"),
    "extend of nobody": (
        "extend:\n  nobody:\n    test:\n      - comment: x\na:\n  test.nop\n",
        "init.sls:2: extend: no state test: 'nobody' in this run; is an include missing?",
    ),
    "unknown output": (
        "a:\n  cmd.run:\n    - name: echo ${bb.stdout}\nb:\n  cmd.run:\n    - name: date\n",
        "init.sls:3: 'a': ${bb.stdout} refers to no state of this run; did you mean 'b'?",
    ),
    "cycle through an output": (
        "a:\n  cmd.run:\n    - name: echo ${b.stdout}\nb:\n  cmd.run:\n    - name: echo ${a.stdout}\n",
        "init.sls:2: the requisites form a cycle: 'a' (init.sls:2) require 'b', 'b' (init.sls:5) require 'a'",
    ),
    "output of another node without a mesh": (
        "a:\n  cmd.run:\n    - name: echo ${node:web-1/b.stdout}\n",
        "init.sls:3: 'a': ${node:web-1/b.stdout} takes another node's output, which only a mesh run has",
    ),
    "listen without a reaction": (
        "a:\n  test.nop:\n    - listen:\n      - test: nobody\n",
        "init.sls:4: listen: in 'a': no state test: 'nobody' in this run",
    ),
    "missing include": (
        "include:\n  - webb\na:\n  test.nop\n",
        "init.sls:2: no SLS 'webb' (neither webb.sls nor webb/init.sls)",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refusal_says_where_and_what(name: str, refusal: Refusal) -> None:
    text, expected = CASES[name]
    problems = refusal(text)
    assert any(problem.startswith(expected) for problem in problems), problems


def test_all_that_is_wrong_is_told_at_once(refusal: Refusal) -> None:
    text = "a:\n  test.nop:\n    - require:\n      - test: x\nb:\n  test.nop:\n    - watch:\n      - test: y\n"
    assert [problem.split(": ")[0] for problem in refusal(text)] == ["init.sls:4", "init.sls:8"]


def test_the_line_is_that_of_the_source_not_of_the_rendered_text(refusal: Refusal) -> None:
    loop = "{% for n in range(5) %}\ns{{ n }}:\n  test.nop\n{% endfor %}\n{# a note\nof two lines #}\n"
    text = loop + "a:\n  test.nop:\n    - require:\n      - test: z\n"
    assert refusal(text)[0].startswith("init.sls:10: require: in 'a'")


def test_an_undefined_name_is_told_with_its_line(refusal: Refusal) -> None:
    assert refusal("a:\n  test.nop\n{{ nobody }}:\n  test.nop\n") == [
        "init.sls:3: 'nobody' is undefined; define it in vars/ or with --var"
    ]


def test_a_template_that_reaches_outside_the_sandbox_is_refused(refusal: Refusal) -> None:
    problems = refusal("{{ ''.__class__.__mro__[1].__subclasses__() }}:\n  test.nop\n")
    assert "SecurityError" in problems[0] or "undefined" in problems[0]


def test_a_template_that_never_ends_is_stopped(refusal: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackwright.states.reading.render.CPU_SECONDS", 1)
    monkeypatch.setattr("rackwright.states.reading.render.WALL_SECONDS", PATIENCE)
    problems = refusal("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}\n")
    assert problems == ["init.sls: rendering was stopped: it used more than 1 s of CPU time"]


def test_a_template_that_eats_memory_is_stopped(refusal: Refusal) -> None:
    problems = refusal("{% set x = 'x' * 4000000000 %}\na:\n  test.nop\n")
    assert "memory" in problems[0]


def test_a_file_of_another_folder_cannot_be_imported(refusal: Refusal) -> None:
    assert "no template '../secret.jinja'" in refusal("{% import '../secret.jinja' as s %}\n")[0]


def test_the_same_id_in_two_files_names_both(refusal: Refusal) -> None:
    problems = refusal("include:\n  - b\na:\n  test.nop\n", b="a:\n  test.fail_with_changes\n")
    assert problems == ["b.sls:1: the ID 'a' is declared in init.sls:3 already; IDs are unique in a run"]
