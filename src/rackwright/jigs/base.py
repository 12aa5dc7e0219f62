"""The one shape of every jig."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from rackwright.domain.runs import Outcome, Run
from rackwright.reach.run_log import Log

if TYPE_CHECKING:
    from rackwright.jigs.ports import JigPorts


@dataclass(frozen=True)
class JigNode:
    """What a jig is told of a node."""

    id: int
    name: str
    address: str | None = None


class Jig(ABC):
    """Does the work of noderoles. Its node methods keep whatever it knows of nodes up to date; each may be repeated.

    A jig is one file of this package: a class with a `kind` of its own is found (`registry.py`). The values here are
    read from that file without importing it, so a jig writes them as literals.
    """

    kind: ClassVar[str]
    """By what name barclamps mean it."""
    lab_only: ClassVar[bool] = False
    """Whether only a server for simulated machines (`--lab`) has it."""
    instant: ClassVar[bool] = False
    """Whether its runs wait for nothing: they need neither a task nor a deadline of their own."""
    own_log: ClassVar[bool] = False
    """Whether something else writes the log of its runs: a log has one writer, see `store/runs/run_logs.py`."""
    runs_files: ClassVar[bool] = False
    """Whether its runs run files of the role's barclamp: a run then says by their digest which."""
    role_folder: ClassVar[str] = ""
    """The folder in a barclamp in which each role of this jig has a folder of its own; empty: it needs none."""
    role_folder_lacks: ClassVar[str] = ""
    """What a role without that folder does not have, and what to do about it."""

    @classmethod
    def make(cls, ports: "JigPorts") -> Self:
        """Make the jig of a server from what the server gives."""
        return cls()

    async def node_create(self, node: JigNode) -> None:  # noqa: B027  # nothing is the default
        """Hear of a new node; by default, nothing is kept of nodes."""

    async def node_update(self, node: JigNode) -> None:  # noqa: B027  # nothing is the default
        """Hear of a node that changed; by default, nothing is kept of nodes."""

    async def node_delete(self, node: JigNode) -> None:  # noqa: B027  # nothing is the default
        """Hear of a node that is gone; by default, nothing is kept of nodes."""

    @abstractmethod
    async def run(self, run: Run, log: Log) -> Outcome:
        """Do the work of a noderole."""
