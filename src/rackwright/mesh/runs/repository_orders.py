"""The standing order that an operator signs: run this branch on these servers whenever it moves.

Values only; `repositories.py` acts on them.
"""

import json
from dataclasses import asdict, dataclass

from rackwright.mesh.errors import BadRequest
from rackwright.mesh.runs.run_model import Targets, read_targets


@dataclass(frozen=True)
class RepositoryOrder:
    """An order to run a branch on some servers whenever it moves."""

    name: str
    cluster: str
    url: str
    branch: str
    targets: Targets
    mode: str = "ansible"
    seconds: float = 60.0
    """How often to check whether the branch has moved"""
    signed_commits: bool = False
    """Whether to run only commits that are signed by a trusted key"""
    modules: tuple[str, ...] = ()
    """URLs of web folders with extension modules"""

    def dump(self) -> str:
        return json.dumps({"kind": "repository", **asdict(self)}, sort_keys=True)


def read_order(text: str) -> RepositoryOrder:
    try:
        content = json.loads(text)
        targets = content.pop("targets")
        if content.pop("kind") != "repository":
            raise ValueError("it is no order for a repository")
        content["modules"] = tuple(content.get("modules", ()))
        return RepositoryOrder(targets=read_targets(targets), **content)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise BadRequest(f"the order cannot be read: {problem}") from problem
