"""Says by name what installs wipe, for the question that comes before."""

from collections.abc import Sequence
from typing import Any

MOST_NAMED = 20
"""Things on disks that a question names; the plan has all of them."""
LONGEST_NAMED = 90
"""Letters of each in the question."""


def name_lost_data(installs: Sequence[dict[str, Any]]) -> str:
    """Return what is lost on the disks of these installs; an empty text if nothing is known to be on them."""
    lost = [
        f"{_cut(content)} on {disk['name']} of {install['node']}"
        for install in installs
        for disk in install["wipes"]
        for content in (disk["contents"] or ([] if disk["known"] else ["what nobody knows"]))
    ]
    more = f", and {len(lost) - MOST_NAMED} more" if len(lost) > MOST_NAMED else ""
    return ", ".join(lost[:MOST_NAMED]) + more


def _cut(content: str) -> str:
    return content if len(content) <= LONGEST_NAMED else f"{content[:LONGEST_NAMED]}…"
