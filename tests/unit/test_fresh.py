"""What `scripts/fresh` refuses, before it makes anything."""

import subprocess
from pathlib import Path

import pytest

FRESH = Path(__file__).parents[2] / "scripts" / "fresh"


@pytest.mark.parametrize(
    ("command", "refusal"),
    [
        ([FRESH, "--suite", "sid"], "there is no suite 'sid': name bookworm (Debian 12) or trixie (Debian 13)"),
        ([FRESH, "--suite"], "there is no suite '': name bookworm"),
        ([FRESH, "--fast"], "there is --suite NAME and --keep, no '--fast'"),
        # In a user namespace without a mapping nobody is root.
        (["unshare", "--user", FRESH], "needs root. Run: sudo make fresh"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(command: list[str | Path], refusal: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert refusal in done.stderr
