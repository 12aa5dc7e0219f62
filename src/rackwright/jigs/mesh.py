"""The jig of the mesh's roles: checks that the node is a member of the mesh, and does nothing to it.

The mesh decides who is a member and who holds the datastore. The server only follows the mesh, so a role that a person
bound to a node the mesh does not know fails here, and the error says what to do.
"""

from typing import Self

from rackwright.domain.machines.mesh_members import BELONGS, MARK
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import Jig
from rackwright.jigs.ports import JigPorts
from rackwright.reach.mesh_states import ReadMembership
from rackwright.reach.run_log import Log


class MeshJig(Jig):
    kind = "mesh"

    def __init__(self, membership: ReadMembership) -> None:
        self._membership = membership

    @classmethod
    def make(cls, ports: JigPorts) -> Self:
        return cls(ports.membership)

    async def run(self, run: Run, log: Log) -> Outcome:
        mark = await self._membership(run.node_id)
        if mark is None or mark.get("state") not in {state.value for state in BELONGS}:
            return Outcome.failure(
                f"{run.node} is no member of the mesh. Let it in with: rackwright mesh invite; or take {run.role} away."
            )
        log(f"{run.node} is {mark['member']} in the mesh {mark['cluster']}\n")
        return Outcome.success({MARK: {"member": mark["member"], "cluster": mark["cluster"]}})
