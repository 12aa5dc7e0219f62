"""The base class of all jigs, and the logs that their runs write to."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from rackwright.domain.runs import Outcome, Run
from rackwright.reach.run_log import Log

if TYPE_CHECKING:
    from rackwright.jigs.ports import JigPorts


@dataclass(frozen=True)
class JigNode:
    """What a jig knows of a node."""

    id: int
    name: str
    address: str | None = None


class Jig(ABC):
    """Does the work of noderoles. Its node methods keep up to date what it knows of nodes; each may be repeated.

    A jig is one file of this package: a class with a `kind` of its own is found (`registry.py`). The values here are
    read from that file without importing it, so a jig writes them as literals.
    """

    kind: ClassVar[str]
    """The name by which barclamps choose this jig."""
    lab_only: ClassVar[bool] = False
    """Whether only a server for simulated machines (`--lab`) has it."""
    instant: ClassVar[bool] = False
    """Whether its runs wait for nothing: they need neither a task nor a deadline of their own."""
    own_log: ClassVar[bool] = False
    """Whether something else writes the log of its runs: a log has one writer, see `store/runs/run_logs.py`."""
    runs_files: ClassVar[bool] = False
    """Whether its runs run files of the role's barclamp: such a run carries the digest of those files."""
    role_folder: ClassVar[str] = ""
    """The folder in a barclamp in which each role of this jig has a folder of its own; empty: it needs none."""
    role_folder_lacks: ClassVar[str] = ""
    """What a role without that folder does not have, and what to do about it."""

    @classmethod
    def make(cls, ports: "JigPorts") -> Self:
        """Make the jig of a server from the server's ports."""
        return cls()

    async def node_create(self, node: JigNode) -> None:  # noqa: B027  # nothing is the default
        """Take note of a new node; by default, a jig keeps nothing of nodes."""

    async def node_update(self, node: JigNode) -> None:  # noqa: B027  # nothing is the default
        """Take note of a node that changed; by default, a jig keeps nothing of nodes."""

    async def node_delete(self, node: JigNode) -> None:  # noqa: B027  # nothing is the default
        """Take note of a node that was deleted; by default, a jig keeps nothing of nodes."""

    @abstractmethod
    async def run(self, run: Run, log: Log) -> Outcome:
        """Do the work of a noderole, and return how it went."""
