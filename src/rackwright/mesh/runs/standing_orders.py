"""An operator's standing order: which branch to run where whenever it moves. Values only; who acts on it is
`repositories.py`.
"""

import json
from dataclasses import asdict, dataclass

from rackwright.mesh.errors import BadRequest
from rackwright.mesh.runs.run_model import Targets, read_targets


@dataclass(frozen=True)
class Order:
    """What an operator signs: run this branch there whenever it moves."""

    name: str
    cluster: str
    url: str
    branch: str
    targets: Targets
    mode: str = "ansible"
    seconds: float = 60.0
    """How often to look."""
    signed_commits: bool = False
    """Only commits that are signed by a trusted key."""
    modules: tuple[str, ...] = ()
    """Web folders that have extension modules"""

    def dump(self) -> str:
        return json.dumps({"kind": "repository", **asdict(self)}, sort_keys=True)


def read_order(text: str) -> Order:
    try:
        content = json.loads(text)
        targets = content.pop("targets")
        if content.pop("kind") != "repository":
            raise ValueError("it is no order for a repository")
        content["modules"] = tuple(content.get("modules", ()))
        return Order(targets=read_targets(targets), **content)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise BadRequest(f"the order cannot be read: {problem}") from problem
