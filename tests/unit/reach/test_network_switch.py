"""What the switch on a node answers, and everything else that a node may send instead."""

import pytest

from rackwright.domain.runs import Run
from rackwright.reach.network_switch import SwitchAnswer, SwitchState, read_answer, switch_command

RUN = Run(17, 1, 1, "n1", "provisioner-node-network", "node-network", "node-network", {}, deadline=60.0)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("armed\n", SwitchAnswer(SwitchState.ARMED)),
        ("applied 12\n", SwitchAnswer(SwitchState.APPLIED, seconds=12)),
        ("confirmed\n", SwitchAnswer(SwitchState.CONFIRMED)),
        ("back it was late\n", SwitchAnswer(SwitchState.BACK, reason="it was late")),
        ("a complaint of a shell\napplied 3\n", SwitchAnswer(SwitchState.APPLIED, seconds=3)),
    ],
)
def test_answers(text: str, answer: SwitchAnswer) -> None:
    assert read_answer(text) == answer


@pytest.mark.parametrize("text", ["", "\n", "applied\x00 3", "confirmed?", "back " + "x" * 500, "applied ³"])
def test_anything_else_is_no_answer(text: str) -> None:
    assert read_answer(text) == SwitchAnswer(SwitchState.UNKNOWN)


def test_a_change_is_not_in_force_for_a_time_that_is_none() -> None:
    assert read_answer("applied -5").seconds == 0
    assert read_answer("applied soon").seconds == 0


def test_the_switch_is_asked_about_the_change_of_this_run() -> None:
    assert " status 17" in switch_command("status", RUN)
