"""The log that every jig is given hides the secrets of its run, whatever the jig itself does."""

from rackwright.annealer.masked_log import masked_log
from rackwright.domain.masking import Mask


def test_a_secret_that_comes_in_pieces_never_reaches_the_log() -> None:
    written: list[str] = []
    with masked_log(Mask(["hunter2-hunter2"]), written.append) as log:
        for piece in ("password: hun", "ter2-hun", "ter2\n", "done; hunt"):
            log(piece)
    text = "".join(written)
    assert "hunter2" not in text
    assert text.startswith("password: ")
    assert text.endswith("done; hunt"), "what was held back is shown once it can be no secret"


def test_a_run_without_secrets_writes_as_it_is() -> None:
    written: list[str] = []
    with masked_log(Mask(), written.append) as log:
        log("hunter2")
    assert written == ["hunter2"]
