"""Calls of the API, without a server: what is sent, when it is sent again, and the results of answers."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from rackwright.client import calls
from rackwright.client.calls import ONCE, Answer, Call, Pause, Result, RetryPolicy, Steps
from rackwright.client.errors import ApiProblem, NoAnswer

THREE = RetryPolicy(attempts=3, pause=0.3)
LOST = NoAnswer("http://server", "the line is cut")


class Script:
    """Gives answers in their order, and records the calls and pauses."""

    def __init__(self, *answers: Answer | NoAnswer) -> None:
        self._answers = list(answers)
        self.calls: list[Call] = []
        self.pauses: list[float] = []

    def run(self, steps: Steps[Result]) -> Result:
        try:
            step = next(steps)
            while True:
                step = steps.send(self._carry_out(step))
        except StopIteration as end:
            result: Result = end.value
            return result

    def _carry_out(self, step: Call | Pause) -> Answer | NoAnswer | None:
        if isinstance(step, Pause):
            self.pauses.append(step.seconds)
            return None
        self.calls.append(step)
        return self._answers.pop(0)


def answer(content: Any = None, status: int = 200) -> Answer:
    return Answer(status, {}, b"" if content is None else json.dumps(content).encode())


def page(items: Iterable[int], following: str | None) -> Answer:
    return answer({"items": [{"id": id} for id in items], "next": following})


def test_a_call_that_got_no_answer_is_tried_again_as_often_as_patience_lasts() -> None:
    script = Script(LOST, LOST, answer({"id": 1}))
    assert script.run(calls.get(THREE, "/nodes/1", {})) == {"id": 1}
    assert script.pauses == [0.3, 0.6]
    script = Script(LOST, LOST, LOST)
    with pytest.raises(NoAnswer, match="the line is cut"):
        script.run(calls.get(THREE, "/nodes/1", {}))
    assert len(script.calls) == 3


def test_a_change_has_the_same_key_each_time_it_is_tried() -> None:
    script = Script(LOST, answer({"id": 1}, 201))
    script.run(calls.post(THREE, "/nodes", {"name": "n1"}, {}))
    first, second = (call.headers["Idempotency-Key"] for call in script.calls)
    assert first == second
    assert len(first) == 32


def test_being_told_to_come_later_is_an_answer_unless_patience_says_otherwise() -> None:
    busy = answer({"detail": "busy"}, 503)
    with pytest.raises(ApiProblem, match="busy"):
        Script(busy).run(calls.get(THREE, "/nodes", {}))
    patient = RetryPolicy(attempts=None, retry_statuses=frozenset({503}))
    assert Script(*[busy] * 9, answer([])).run(calls.get(patient, "/nodes", {})) == []


def test_pauses_grow_up_to_the_longest() -> None:
    script = Script(*[LOST] * 5, answer())
    script.run(calls.get(RetryPolicy(attempts=None, pause=0.4, longest_pause=1.0), "/nodes", {}))
    assert script.pauses == [0.4, 0.8, 1.0, 1.0, 1.0]


def test_a_list_is_read_to_its_last_page() -> None:
    script = Script(page([1, 2], "more"), page([3], None))
    assert script.run(calls.pages(ONCE, "/nodes", None, {"sort": "id"})) == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert [call.query for call in script.calls] == [
        {"limit": 1000, "sort": "id"},
        {"cursor": "more", "limit": 1000, "sort": "id"},
    ]


def test_of_a_list_so_many_are_read_as_are_wanted() -> None:
    script = Script(page([1, 2], "more"), page([3], "yet more"))
    assert len(script.run(calls.pages(ONCE, "/nodes", 3, {}))) == 3
    assert [call.query["limit"] for call in script.calls] == [3, 1]


def test_a_change_holds_only_if_the_object_is_as_it_was_read() -> None:
    script = Script(answer({"etag": "7"}), answer({"etag": "8"}))
    script.run(calls.merge(ONCE, "/nodes/n1", {"alive": True}))
    read, change = script.calls
    assert (read.method, change.method) == ("GET", "PATCH")
    assert change.headers == {"Content-Type": "application/merge-patch+json", "If-Match": '"7"'}
    assert change.content == b'{"alive": true}'


@pytest.mark.parametrize("check_unchanged", [True, False])
def test_what_cannot_be_read_by_itself_is_put_as_it_is(check_unchanged: bool) -> None:
    script = Script(*[answer({"etag": "7"})] * check_unchanged, answer())
    script.run(calls.put(ONCE, "/nodes/n1/bmc", {}, check_unchanged))
    assert ("If-Match" in script.calls[-1].headers) == check_unchanged


def test_names_stay_names_in_a_path() -> None:
    script = Script(answer())
    script.run(calls.get(ONCE, "/nodes/what is?this#", {}))
    assert script.calls[0].path == "/api/v2/nodes/what%20is%3Fthis%23"


@pytest.mark.parametrize("name", ["", ".", "..", "../users"])
def test_what_can_be_no_name_is_not_even_asked_for(name: str) -> None:
    script = Script()
    with pytest.raises(ApiProblem, match="There is nothing of the name") as refused:
        script.run(calls.get(ONCE, f"/nodes/{name}", {}))
    assert refused.value.status == 404


def test_a_token_is_made_as_a_browser_would_and_the_session_ended() -> None:
    script = Script(answer({"csrf": "c"}), answer({"token": "t"}, 201), answer(status=204))
    assert script.run(calls.make_token("http://server", "ada", "secret", "laptop")) == "t"
    assert [str(call) for call in script.calls] == ["POST /sessions", "POST /tokens", "DELETE /sessions/current"]
    assert [call.headers.get("X-CSRF-Token") for call in script.calls] == [None, "c", "c"]
    assert script.calls[2].headers["Origin"] == "http://server"


def test_a_wrong_password_is_tried_once() -> None:
    script = Script(answer({"detail": "Wrong."}, 401))
    with pytest.raises(ApiProblem, match=r"Wrong\."):
        script.run(calls.make_token("http://server", "ada", "wrong", "laptop"))
    assert len(script.calls) == 1


@pytest.mark.parametrize(("reply", "ready"), [(answer(), True), (answer(status=503), False), (LOST, False)])
def test_a_server_is_ready_when_it_says_so(reply: Answer | NoAnswer, ready: bool) -> None:
    script = Script(reply)
    assert script.run(calls.is_ready()) is ready
    assert script.calls[0].path == "/readyz"
