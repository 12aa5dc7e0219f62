"""Which deployments a reader may see: an explicit parameter of every query whose rows are shown to people.

The API decides which deployments those are. A query has a condition that its rows lie in the deployments `:sees`, and
is given `values`.
"""

from collections.abc import Mapping, Sequence


class Visibility:
    """The deployments whose nodes, roles and other rows a reader may see."""

    def __init__(self, deployments: Sequence[int] | None) -> None:
        """`deployments` None: all of them, and rows that belong to no deployment."""
        self._deployments = deployments
        self.values: Mapping[str, object] = {} if deployments is None else {"sees": list(deployments)}
        """The bound values that the condition needs."""

    def condition(self, seen: str) -> str:
        """Return the SQL condition that limits a query to rows that may be seen.

        `seen`: the condition that a row lies in the deployments `:sees`.
        """
        return "true" if self._deployments is None else seen


EVERYTHING = Visibility(None)
"""For queries that are made for no reader, or for a change whose permission is checked elsewhere."""
