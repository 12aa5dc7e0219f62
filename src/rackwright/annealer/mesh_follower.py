"""Following the mesh: what its agent on this host says of members and datastore becomes nodes and noderoles.

Driven by the agent's own stream of events. Of several servers on one database one follows at a time, so that two that
see the mesh differently do not undo each other's work; another carries on when it ends. What a view means for nodes is
in `store/machines/mesh_members.py`.
"""

import logging
import time
from contextlib import aclosing
from typing import Any

from rackwright.annealer.loop import Loop
from rackwright.domain.errors import RackwrightError
from rackwright.domain.machines.mesh_members import Member, MemberState, MeshView
from rackwright.mesh.client import MeshClient, MeshError
from rackwright.store.db.locks import MESH_LOCK
from rackwright.store.db.session import first_line
from rackwright.store.db.single_server import ServerLock, try_server_lock
from rackwright.store.machines.mesh_members import Followed, follow_mesh, marked_members
from rackwright.store.store import Store

log = logging.getLogger(__name__)

ACTOR = "mesh"
ABSENT = 60.0
"""Seconds for which a member may be unknown before it counts as gone: an agent that just started knows nobody yet."""
RECHECK = 30.0
"""Seconds after which everything is looked at again although nothing happened."""

Look = tuple[tuple[Any, ...], ...]
"""What of the members matters here, to tell whether something happened."""


def _look(members: list[dict[str, Any]]) -> Look:
    return tuple((one["name"], one["state"], one["address"], one.get("datastore")) for one in members)


def _member(told: dict[str, Any]) -> Member:
    return Member(told["name"], MemberState(told["state"]), told["address"], told["checks"], told["reasons"])


def _checks(member: dict[str, Any]) -> dict[str, str]:
    """The checks of a member that came to an end, each with how."""
    return {name: status for name, status in member["checks"].items() if status != "unknown"}


class MeshFollower:
    """Runs until cancelled."""

    def __init__(self, store: Store, client: MeshClient, pause: float = 5.0) -> None:
        self._store = store
        self._client = client
        self._pause = pause
        self._absent: dict[str, float] = {}
        self._told: set[str] = set()

    async def run(self) -> None:
        await Loop(self._store, tick=self._pause, purpose="follow the mesh").run(self._follow_alone)

    async def _follow_alone(self) -> None:
        """Follow the mesh until its agent ends, unless another server does."""
        try:
            async with try_server_lock(self._store, MESH_LOCK) as held:
                if held is not None:
                    await self._follow(held)
        except MeshError as error:
            self._tell({f"cannot follow the mesh: {error}"})
        except RackwrightError as error:
            log.warning("cannot follow the mesh: %s", first_line(error))

    async def _follow(self, held: ServerLock) -> None:
        """Until the agent ends."""
        cluster = await self._client.cluster()
        self._absent.clear()
        seen: Look = ()
        checks: list[dict[str, str]] = []
        due = calm = 0.0
        async with aclosing(self._client.listen("watch")) as answers:
            async for answer in answers:
                members = answer["members"]
                look, now = _look(members), time.monotonic()
                software = [_checks(member) for member in members]
                # Software that fails and passes all the time is looked at now and then; a death at once.
                if look == seen and now < due and (software == checks or now < calm):
                    continue
                voters = await self._voters()
                await held.check()
                await self._apply(cluster, members, voters)
                now = time.monotonic()
                seen, checks, calm = look, software, now + self._pause
                due = now + (self._pause if voters is None else RECHECK)

    async def _voters(self) -> frozenset[str] | None:
        """Who holds the datastore, as etcd has it and not as servers say of themselves."""
        told = await self._client.ask("datastore")
        if not told["quorum"]:
            return None
        return frozenset(one["server"] for one in told["members"] if one["server"] and not one["learner"])

    async def _apply(self, cluster: str, members: list[dict[str, Any]], voters: frozenset[str] | None) -> None:
        async with self._store.read() as session:
            marked = await marked_members(session, cluster)
        found = [_member(told) for told in members]
        view = MeshView(cluster, (*found, *self._gone(marked - {one.name for one in found})), voters)
        followed = await self._store.change_graph(lambda session: follow_mesh(session, view), actor=ACTOR)
        self._say(followed)

    def _gone(self, absent: set[str]) -> list[Member]:
        now = time.monotonic()
        self._absent = {name: self._absent.get(name, now) for name in absent}
        return [Member(name, MemberState.GONE, "") for name, since in self._absent.items() if now - since > ABSENT]

    def _say(self, followed: Followed) -> None:
        for change in followed.changes:
            log.info("%s", change)
        self._tell(set(followed.refused))

    def _tell(self, troubles: set[str]) -> None:
        """Each trouble once, for as long as it lasts."""
        for trouble in sorted(troubles - self._told):
            log.warning("%s", trouble)
        self._told = troubles
