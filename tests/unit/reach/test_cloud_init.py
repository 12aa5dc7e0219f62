"""What is sent to give a system its seed, and what comes back."""

import io
import tarfile

import pytest

from rackwright.domain.installs.cloud_init.status import BadStatus, CloudInitState
from rackwright.domain.installs.request import RootFile
from rackwright.domain.masking import Mask
from rackwright.reach.cloud_init import pack_seed, read_answer

DONE = '{\n "status": "done",\n "errors": []\n}\n'


def test_a_seed_is_an_archive_with_modes_and_the_same_each_time() -> None:
    files = (RootFile("/etc/a", "hä\n"), RootFile("/var/b", "x", 0o600))
    packed = pack_seed(files)
    assert packed == pack_seed(files)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert [(entry.name, entry.mode, entry.uid) for entry in archive] == [("etc/a", 0o644, 0), ("var/b", 0o600, 0)]


def test_an_answer_tells_whether_the_seed_is_wanted_and_how_far_cloud_init_is() -> None:
    assert read_answer("wanted\n", str) is None
    done = read_answer(f"delivered\nfailed \nactive\n{DONE}", str)
    assert done is not None
    assert done.state is CloudInitState.DONE
    waiting = read_answer('kept\nfailed cloud-config.service \nwaiting\n{"status": "running"}\n', str)
    assert waiting is not None
    assert waiting.state is CloudInitState.PENDING, "its last stage is still to come"


def test_a_cloud_init_that_broke_in_its_last_stage_is_not_waited_for() -> None:
    status = read_answer('kept\nfailed cloud-final.service \nactive\n{"status": "running"}\n', str)
    assert status is not None
    assert status.state is CloudInitState.FAILED
    assert status.reason == "these failed: cloud-final.service"


@pytest.mark.parametrize("text", ["", "the seed arrived incomplete\n", "delivered\nfailed\nactive\n", "kept\nfailed\n"])
def test_an_answer_that_says_nothing_is_trouble(text: str) -> None:
    with pytest.raises(BadStatus):
        read_answer(text, str)


def test_what_is_told_of_trouble_has_no_part_of_a_secret() -> None:
    secret = "a-password-that-is-long"
    with pytest.raises(BadStatus) as trouble:
        read_answer(secret + "x" * 290, Mask([secret]).text)
    assert "long" not in str(trouble.value)
