"""What an answer of the datastore says: done, certainly not done, or nobody knows."""

import json

import pytest

from rackwright.mesh.datastore.etcd_client import read_answer
from rackwright.mesh.errors import NoDatastore, Rejected

HERE = "https://s1:2379"


def refusal(code: int, message: str = "no") -> bytes:
    return json.dumps({"error": message, "code": code, "message": message}).encode()


def test_an_answer_without_an_error_is_the_answer() -> None:
    assert read_answer(HERE, 200, b'{"kvs": []}') == {"kvs": []}


@pytest.mark.parametrize("code", [2, 4, 8, 13, 14])
def test_where_it_may_have_been_done_it_is_not_called_a_refusal(code: int) -> None:
    with pytest.raises(NoDatastore, match="https://s1:2379: no"):
        read_answer(HERE, 500, refusal(code))


def test_a_member_that_is_ending_answers_with_an_error_of_its_transport() -> None:
    told = "OK: HTTP status code 200; transport: missing content-type field"
    with pytest.raises(NoDatastore, match="missing content-type"):
        read_answer(HERE, 500, refusal(2, told))


@pytest.mark.parametrize("code", [3, 5, 6, 7, 9, 11, 16])
def test_a_refusal_is_final(code: int) -> None:
    with pytest.raises(Rejected, match="no"):
        read_answer(HERE, 400, refusal(code))


def test_what_is_not_json_comes_from_no_datastore() -> None:
    with pytest.raises(NoDatastore, match="answered 200 and no JSON"):
        read_answer(HERE, 200, b"<html>")
