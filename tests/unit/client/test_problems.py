"""The error text for an answer that is no success: the server's own words, and the field they are about."""

import json
from typing import Any

import pytest

from rackwright.client.errors import NoAnswer, problem_from


@pytest.mark.parametrize(
    ("details", "sentence"),
    [
        ({"detail": "There is no node 'n1'."}, "There is no node 'n1'."),
        ({"title": "Not found"}, "Not found"),
        ({}, "404"),
        ({"detail": "It must be a number.", "pointer": "/ssh_port"}, "/ssh_port: It must be a number."),
        ({"detail": "ssh_port must be a number.", "pointer": "/ssh_port"}, "ssh_port must be a number."),
        ({"detail": "one", "errors": [{"detail": "one"}, {"detail": "two"}]}, "one; two"),
    ],
)
def test_a_problem_is_told_in_one_sentence(details: dict[str, Any], sentence: str) -> None:
    problem = problem_from(404, json.dumps({"type": "urn:x", **details}).encode(), "GET /nodes/n1")
    assert (str(problem), problem.status, problem.type, problem.call) == (sentence, 404, "urn:x", "GET /nodes/n1")


@pytest.mark.parametrize("content", [b"", b"<html>", b"[]", b'"text"', b"\xff"])
def test_an_answer_without_a_problem_is_told_by_its_status(content: bytes) -> None:
    problem = problem_from(502, content)
    assert (str(problem), problem.type) == ("The server answered 502 without saying why.", "")


def test_a_password_in_a_url_is_not_told() -> None:
    assert "secret" not in str(NoAnswer("http://ada:secret@server", "refused"))
