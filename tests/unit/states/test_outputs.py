"""Outputs as variables: typed, in order by themselves, and masked where they are secret."""

import json
from typing import Any

import pytest

from rackwright.states.catalogue import Catalogue
from rackwright.states.module import StateError
from rackwright.states.plan import build_plan
from rackwright.states.reading.tree import locate_tree
from rackwright.states.running.execution import PlanExecution

from .conftest import Apply, Write


def stdout(report: Any) -> dict[str, str]:
    return {record.id: record.changes.get("stdout") for record in report.records}


@pytest.mark.parametrize("mode", ["ansible", "justdoit", "genius"])
def test_a_reference_is_filled_in_and_puts_the_states_in_order(apply: Apply, mode: str) -> None:
    report = apply(
        "use:\n  cmd.run:\n    - name: echo got ${make.stdout} and ${make.changes.retcode}\n"
        "make:\n  cmd.run:\n    - name: echo hello\n",
        mode,
    )
    assert [record.id for record in report.records] == ["make", "use"]
    assert stdout(report)["use"] == "got hello and 0"


def test_a_lone_reference_keeps_its_type(apply: Apply) -> None:
    report = apply(
        "make:\n  cmd.run:\n    - name: exit 7\n    - success_retcodes: [7]\n"
        "use:\n  test.configurable_test_state:\n    - changes: ${make.result}\n    - comment: ${make.stdout}\n"
    )
    use = report.records[1]
    assert (use.result, bool(use.changes)) == (True, True)


def test_a_filled_in_value_of_the_wrong_type_fails_the_state_only(apply: Apply) -> None:
    report = apply(
        "make:\n  cmd.run:\n    - name: echo soon\n"
        "use:\n  cmd.run:\n    - name: 'true'\n    - timeout: ${make.stdout}\n"
        "other:\n  test.nop\n"
    )
    assert [record.outcome.value for record in report.records] == ["changed", "failed", "unchanged"]
    assert "argument 'timeout' must be a number" in report.records[1].comment


def test_shell_expansions_stay_with_the_shell(apply: Apply) -> None:
    report = apply(
        "a:\n  cmd.run:\n    - name: 'f=report.txt; x=1; echo ${HOME} ${f%.txt} ${x:-2.0} ${f/.txt/}'\n"
        "    - env: {HOME: /somewhere}\n    - shell: /bin/bash\n"
    )
    assert stdout(report) == {"a": "/somewhere report 1 report"}


def test_two_dollars_are_a_literal_reference(apply: Apply) -> None:
    report = apply("a:\n  cmd.run:\n    - name: date\nb:\n  cmd.run:\n    - name: echo '$${a.stdout}'\n")
    assert stdout(report)["b"] == "${a.stdout}"


def test_an_id_with_dots_and_dashes_is_found(apply: Apply) -> None:
    report = apply(
        "web-1.conf:\n  cmd.run:\n    - name: echo x\nb:\n  cmd.run:\n    - name: echo ${web-1.conf.stdout}\n"
    )
    assert stdout(report)["b"] == "x"


def test_a_failed_state_blocks_what_refers_to_it(apply: Apply) -> None:
    report = apply("a:\n  cmd.run:\n    - name: 'false'\nb:\n  cmd.run:\n    - name: echo ${a.stdout}\n")
    assert report.records[1].outcome.value == "blocked"


def test_an_output_that_is_not_there_fails_with_those_that_are(apply: Apply) -> None:
    report = apply("a:\n  cmd.run:\n    - name: date\nb:\n  cmd.run:\n    - name: echo ${a.stdoutt}\n")
    assert report.records[1].outcome.value == "failed"
    assert "has no output 'stdoutt'; it has: pid, retcode, stdout, stderr" in report.records[1].comment


def test_a_dry_run_says_that_the_output_is_not_known_yet(apply: Apply) -> None:
    report = apply("a:\n  cmd.run:\n    - name: date\nb:\n  cmd.run:\n    - name: echo ${a.stdout}\n", test=True)
    assert report.records[1].result is None
    assert report.records[1].comment == "What 'a' puts out is known only after it has run"


def test_conditions_may_refer_too(apply: Apply) -> None:
    report = apply(
        "a:\n  cmd.run:\n    - name: echo no\n"
        "b:\n  cmd.run:\n    - name: echo ran\n    - onlyif: test ${a.stdout} = yes\n"
    )
    assert report.records[1].outcome.value == "skipped"


def test_a_mesh_run_takes_another_nodes_output(write: Write) -> None:
    class Mesh:
        def problem(self, node: str, reference: str) -> str | None:
            return None if node == "db-1" else f"there is no node {node!r}"

        def ready(self, node: str, reference: str) -> bool:
            return True

        def fetch(self, node: str, reference: str) -> Any:
            if reference == "lost.stdout":
                raise StateError("db-1 is gone")
            return f"{reference} of {node}"

    tree, sls = locate_tree(
        write(
            init="a:\n  cmd.run:\n    - name: echo ${node:db-1/init.stdout}\n"
            "b:\n  cmd.run:\n    - name: echo ${node:db-1/lost.stdout}\n"
        )
    )
    report = PlanExecution(build_plan(tree, sls, {}, {}, Catalogue(), Mesh())).execute()
    assert stdout(report)["a"] == "init.stdout of db-1"
    assert (report.records[1].outcome.value, report.records[1].comment) == ("failed", "db-1 is gone")


@pytest.mark.parametrize("mode", ["ansible", "justdoit", "genius"])
def test_a_secret_output_is_masked_wherever_it_turns_up(apply: Apply, mode: str) -> None:
    report = apply(
        "token:\n  cmd.run:\n    - name: echo tok-5ecret\n    - no_log: True\n"
        "leak:\n  cmd.run:\n    - name: echo using ${token.stdout}; echo ${token.stdout} >&2; exit 1\n",
        mode,
    )
    shown = json.dumps(report.as_json())
    # The name of `token` itself was written in the file; what it put out is the secret.
    assert shown.count("tok-5ecret") == 0
    assert "using ********" in shown


def test_short_secrets_do_not_blank_out_everything(apply: Apply) -> None:
    report = apply("t:\n  cmd.run:\n    - name: echo a\n    - no_log: True\n")
    assert report.as_json()["states"][0]["id"] == "t"
