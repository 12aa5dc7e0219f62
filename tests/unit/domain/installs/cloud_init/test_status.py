"""What cloud-init of a machine says of itself."""

import json

import pytest

from rackwright.domain.installs.cloud_init.status import BadStatus, CloudInitState, read_status
from rackwright.domain.masking import Mask


def status(**fields: object) -> tuple[CloudInitState, str]:
    read = read_status(json.dumps(fields), str)
    return read.state, read.reason


def test_running_and_not_yet_run_are_waited_for() -> None:
    assert status(status="running", errors=[])[0] is CloudInitState.PENDING
    assert status(status="not run")[0] is CloudInitState.PENDING
    assert status(status="running", errors=["a stage failed, others go on"])[0] is CloudInitState.PENDING


def test_done_is_done_and_what_it_recovered_from_is_told() -> None:
    assert status(status="done", errors=[]) == (CloudInitState.DONE, "")
    recovered = {"WARNING": ["no such key", "no such key"], "DEPRECATED": ["old"]}
    assert status(status="done", errors=[], recoverable_errors=recovered) == (CloudInitState.DONE, "no such key; old")


def test_an_error_is_told_with_its_reasons_in_one_bounded_line() -> None:
    state, reason = status(status="error", errors=["('scripts-user', ...)\nfailed\x1b[2J", *"abcdefgh"])
    assert state is CloudInitState.FAILED
    assert reason == "its status is error: ('scripts-user', ...) failed [2J; a; b; c; d; and 4 more"
    assert len(status(status="error", errors=["x" * 10_000] * 100)[1]) < 6000
    assert "see /var/log/cloud-init.log" in status(status="error")[1]
    assert status(status="disabled")[0] is CloudInitState.FAILED


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"status": 5}', "Traceback (most recent call last)", "[" * 100_000])
def test_anything_else_is_no_status(text: str) -> None:
    with pytest.raises(BadStatus):
        read_status(text, str)


def test_secrets_are_hidden_before_a_reason_is_shortened_and_put_on_one_line() -> None:
    secret = "two  blanks and\na line"
    mask = Mask([secret])
    for reason in (f"it says {secret}", "x" * 990 + secret):
        shown = read_status(json.dumps({"status": "error", "errors": [reason]}), mask.text).reason
        assert "blanks" not in shown
        assert "two" not in shown
    with pytest.raises(BadStatus) as trouble:
        read_status("x" * 195 + secret, mask.text)
    assert "two" not in str(trouble.value)
