"""Outputs of other states in commands: whatever they hold, a shell reads them as values and never as commands."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackwright.states.module import StateError
from rackwright.states.refusal import RunRefused
from rackwright.states.shelltext import ShellContext, fill_spans, find_contexts

from .conftest import Apply

EVIL = """; touch {proof} $(touch {proof}) `touch {proof}` ' touch {proof} ' " touch {proof} " \\ * ~ & touch {proof}
touch {proof}
END
touch {proof} #"""
"""A value that runs something if any part of it is read as shell text, wherever it stands."""


@pytest.fixture
def evil(tmp_path: Path) -> str:
    return EVIL.format(proof=tmp_path / "proof")


@pytest.fixture
def put_out(tmp_path: Path, evil: str) -> Callable[[str], str]:
    """States, after one whose output is the value."""
    (tmp_path / "value").write_text(evil)
    return lambda states: f"make:\n  cmd.run:\n    - name: cat {tmp_path}/value\n{states}"


def outputs(report: Any) -> list[str]:
    return [record.changes.get("stdout") for record in report.records]


@pytest.mark.parametrize(
    ("command", "shell"),
    [
        ("printf %s ${make.stdout}", "/bin/sh"),
        ('printf %s "${make.stdout}"', "/bin/sh"),
        ("printf %s '${make.stdout}'", "/bin/sh"),
        ('x=${make.stdout}; printf %s "$x"', "/bin/sh"),
        ("printf %s \"$(printf %s '${make.stdout}')\"", "/bin/sh"),
        ('printf %s "$(printf %s "${make.stdout}")"', "/bin/sh"),
        ("printf %s \"`printf %s '${make.stdout}'`\"", "/bin/sh"),
        ("printf %s $'${make.stdout}'", "/bin/bash"),
        ("printf %s ${nothing:-${make.stdout}}", "/bin/sh"),
        ("# isn't this a comment?\nprintf %s ${make.stdout}", "/bin/sh"),
        ("if [[ ${make.stdout} == ${make.stdout} ]]; then printf %s ${make.stdout}; fi", "/bin/bash"),
        ("sh -c 'printf %s \"$1\"' sh ${make.stdout}", "/bin/sh"),
        ("cat <<END\n${make.stdout}\nEND", "/bin/sh"),
        ("cat <<-'A' && cat <<END\n\tx ${HOME}\n\tA\n${make.stdout}\nEND", "/bin/sh"),
    ],
)
def test_an_output_reaches_the_command_whole_and_nothing_of_it_is_run(
    apply: Apply, put_out: Callable[[str], str], evil: str, tmp_path: Path, command: str, shell: str
) -> None:
    block = command.replace("\n", "\n        ")
    report = apply(put_out(f"use:\n  cmd.run:\n    - shell: {shell}\n    - name: |\n        {block}\n"))
    assert not (tmp_path / "proof").exists()
    assert [record.outcome.value for record in report.records] == ["changed", "changed"], report.records[1].comment
    assert outputs(report)[1].endswith(evil)


@pytest.mark.parametrize("option", ["unless", "onlyif", "check_cmd"])
def test_a_condition_reads_an_output_as_a_value_too(
    apply: Apply, put_out: Callable[[str], str], tmp_path: Path, option: str
) -> None:
    for quotes in ("", '"', "'"):
        command = f"echo {quotes}${{make.stdout}}{quotes}".replace("'", "''")
        report = apply(put_out(f"use:\n  test.nop:\n    - {option}: '{command}'\n"))
        assert report.records[1].result is True
        assert not (tmp_path / "proof").exists()


def test_an_output_alone_is_a_programs_name_and_eval_says_that_it_is_meant_to_be_run(apply: Apply) -> None:
    report = apply(
        "make:\n  cmd.run:\n    - name: echo 'echo one; echo two'\n"
        "use:\n  cmd.run:\n    - name: ${make.stdout}\n"
        "run:\n  cmd.run:\n    - name: eval ${make.stdout}\n"
    )
    assert [record.outcome.value for record in report.records] == ["changed", "failed", "changed"]
    assert outputs(report)[2] == "one\ntwo"


@pytest.mark.parametrize(
    "use",
    [
        "echo $((${make.stdout} + 1))",
        "((${make.stdout} > 1))",
        "[[ ${make.stdout} -eq 1 ]]",
        "echo $(( 1 + $(echo ${make.stdout}) ))",
        'x=abc; echo "${x:${make.stdout}}"',
        "x=abc; echo ${x:0:${make.stdout}}",
        "list[${make.stdout}]=1",
        "echo $[ ${make.stdout} ]",
        "let n=${make.stdout}",
        "declare -i n; n=${make.stdout}",
        "test -v ${make.stdout}",
    ],
)
def test_a_shell_calculates_with_whole_numbers_only(apply: Apply, tmp_path: Path, use: str) -> None:
    """Bash runs what stands in a subscript, wherever it calculates."""
    made = f"make:\n  cmd.run:\n    - name: echo 'a[$(touch {tmp_path}/proof)]'\n"
    report = apply(f"{made}use:\n  cmd.run:\n    - name: '{use}'\n    - shell: /bin/bash\n")
    assert not (tmp_path / "proof").exists()
    assert "no whole number" in report.records[1].comment
    well = apply("make:\n  cmd.run:\n    - name: echo 4\nuse:\n  cmd.run:\n    - name: echo $((${make.stdout} + 1))\n")
    assert outputs(well)[1] == "5"


def test_the_words_of_a_script_stay_as_many_as_were_written(
    apply: Apply, put_out: Callable[[str], str], evil: str, tmp_path: Path
) -> None:
    script = tmp_path / "count.sh"
    script.write_text('printf "%s:%s" $# "$2"\n')
    words = "a ${make.stdout} 'b ${make.stdout}'"
    report = apply(put_out(f"use:\n  cmd.script:\n    - source: {script}\n    - args: {words}\n"))
    assert outputs(report)[1] == f"3:{evil}"


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ("use:\n  cmd.run:\n    - name: |\n        cat <<'END'\n        ${make.stdout}\n        END\n", "a quoted end"),
        (
            "use:\n  cmd.run:\n    - name: print(${make.stdout})\n    - shell: /usr/bin/python3\n",
            "cannot be quoted for",
        ),
        ("use:\n  cron.present:\n    - name: echo `${make.stdout}`\n", "into backticks"),
        ("use:\n  file.managed:\n    - name: /x\n    - contents: ${make.stdout}\n    - template: jinja\n", "context:"),
        ("use:\n  file.append:\n    - name: /x\n    - text: ${make.stdout}\n    - template: jinja\n", "context:"),
    ],
)
def test_where_an_output_cannot_stay_a_value_the_run_is_refused_before_anything_is_touched(
    apply: Apply, states: str, message: str
) -> None:
    with pytest.raises(RunRefused, match=message):
        apply("make:\n  cmd.run:\n    - name: date\n" + states)


def test_a_shell_that_is_an_output_itself_is_looked_at_when_it_is_known(apply: Apply) -> None:
    report = apply(
        "make:\n  cmd.run:\n    - name: echo /usr/bin/python3\n"
        "use:\n  cmd.run:\n    - name: print(${make.stdout})\n    - shell: ${make.stdout}\n"
    )
    assert "cannot be quoted for /usr/bin/python3" in report.records[1].comment


def test_a_line_of_a_crontab_gets_quoted_words() -> None:
    text = "echo ${x} \"${x}\" '${x}'"
    filled = fill_spans(text, [(5, 9), (11, 15), (18, 22)], ["a'; b"] * 3, "cron")
    assert shlex.split(filled) == ["echo", "a'; b", "a'; b", "a'; b"]
    for value in ("50%", "a\nb"):
        with pytest.raises(StateError, match="cron reads in its own way"):
            fill_spans("echo @", [(5, 6)], [value], "cron")


def test_places_are_told_apart() -> None:
    text = """@ "@ $(@ '@' "@")" `@` $((@)) $'@' # @\ncat <<A <<'B'\n@\nA\n@\nB\n@ "\\"@" \\'@"""
    spans = [(at, at + 1) for at, letter in enumerate(text) if letter == "@"]
    names = "PLAIN DOUBLE PLAIN SINGLE DOUBLE BACKTICKS ARITHMETIC DOLLAR_SINGLE COMMENT HERE LITERAL_HERE"
    assert [place.name for place in find_contexts(text, spans)] == [*names.split(), "PLAIN", "DOUBLE", "PLAIN"]
    assert find_contexts("a # $(@", [(6, 7)], shell_syntax=False) == [ShellContext.PLAIN]
