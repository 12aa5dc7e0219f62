"""What a reader may see: an explicit parameter of every query that people's answers are made of.

Which deployments those are is for the API to say. A query says of its rows whether they lie in the deployments `:sees`,
and takes `values` along.
"""

from collections.abc import Mapping, Sequence


class Visibility:
    """The deployments whose things may be seen."""

    def __init__(self, deployments: Sequence[int] | None) -> None:
        """`deployments` None: all, and what belongs to none."""
        self._deployments = deployments
        self.values: Mapping[str, object] = {} if deployments is None else {"sees": list(deployments)}
        """The values of the conditions."""

    def condition(self, seen: str) -> str:
        """Return the SQL that keeps a query to what may be seen.

        `seen` says it of a row, by the deployments `:sees`.
        """
        return "true" if self._deployments is None else seen


EVERYTHING = Visibility(None)
"""For what is asked in nobody's name, or changed by somebody whose permission is asked for otherwise."""
