"""Follow the mesh: what its agent on this host reports of members and datastore becomes nodes and noderoles.

The agent's own stream of events drives it. Of several servers on one database one follows the mesh at a time, so that
two servers that see the mesh differently do not undo each other's work; another goes on when that one ends. What a view
of the mesh means for nodes is in `store/machines/mesh_members.py`.
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
from rackwright.store.machines.mesh_members import MeshChanges, follow_mesh, select_marked_members
from rackwright.store.store import Store

log = logging.getLogger(__name__)

ACTOR = "mesh"
ABSENT_SECONDS = 60.0
"""Seconds for which a member may be unknown before it counts as gone: an agent that just started knows nobody yet."""
RECHECK_SECONDS = 30.0
"""Seconds after which a view is applied again although nothing happened."""

MembersSummary = tuple[tuple[Any, ...], ...]
"""The values of the members that matter here: if they differ, something happened."""


def _summarise(members: list[dict[str, Any]]) -> MembersSummary:
    return tuple((member["name"], member["state"], member["address"], member.get("datastore")) for member in members)


def _member(report: dict[str, Any]) -> Member:
    return Member(report["name"], MemberState(report["state"]), report["address"], report["checks"], report["reasons"])


def _checks(member: dict[str, Any]) -> dict[str, str]:
    """Return the checks of a member that have a result, each with its status."""
    return {name: status for name, status in member["checks"].items() if status != "unknown"}


class MeshFollower:
    """Follows the mesh until cancelled."""

    def __init__(self, store: Store, client: MeshClient, pause: float = 5.0) -> None:
        self._store = store
        self._client = client
        self._pause = pause
        self._absent: dict[str, float] = {}
        self._warned: set[str] = set()

    async def run(self) -> None:
        await Loop(self._store, tick=self._pause, purpose="follow the mesh").run(self._follow_if_single)

    async def _follow_if_single(self) -> None:
        """Follow the mesh until its agent ends, unless another server does."""
        try:
            async with try_server_lock(self._store, MESH_LOCK) as lock:
                if lock is not None:
                    await self._follow(lock)
        except MeshError as error:
            self._warn_once({f"cannot follow the mesh: {error}"})
        except RackwrightError as error:
            log.warning("cannot follow the mesh: %s", first_line(error))

    async def _follow(self, lock: ServerLock) -> None:
        """Apply each view that the agent reports, until the agent ends."""
        cluster = await self._client.cluster()
        self._absent.clear()
        last_summary: MembersSummary = ()
        last_checks: list[dict[str, str]] = []
        due = checks_due = 0.0
        async with aclosing(self._client.listen("watch")) as reports:
            async for report in reports:
                members = report["members"]
                summary, now = _summarise(members), time.monotonic()
                checks_now = [_checks(member) for member in members]
                # Software that fails and passes all the time is applied now and then; a death at once.
                if summary == last_summary and now < due and (checks_now == last_checks or now < checks_due):
                    continue
                voters = await self._voters()
                await lock.check()
                await self._apply(cluster, members, voters)
                now = time.monotonic()
                last_summary, last_checks, checks_due = summary, checks_now, now + self._pause
                due = now + (self._pause if voters is None else RECHECK_SECONDS)

    async def _voters(self) -> frozenset[str] | None:
        """Return who holds the datastore, as etcd knows it and not as servers say of themselves; None: no quorum."""
        report = await self._client.ask("datastore")
        if not report["quorum"]:
            return None
        return frozenset(member["server"] for member in report["members"] if member["server"] and not member["learner"])

    async def _apply(self, cluster: str, members: list[dict[str, Any]], voters: frozenset[str] | None) -> None:
        async with self._store.read() as session:
            marked = await select_marked_members(session, cluster)
        present = [_member(report) for report in members]
        view = MeshView(cluster, (*present, *self._long_absent(marked - {member.name for member in present})), voters)
        followed = await self._store.change_graph(lambda session: follow_mesh(session, view), actor=ACTOR)
        self._log_changes(followed)

    def _long_absent(self, absent: set[str]) -> list[Member]:
        now = time.monotonic()
        self._absent = {name: self._absent.get(name, now) for name in absent}
        return [
            Member(name, MemberState.GONE, "") for name, since in self._absent.items() if now - since > ABSENT_SECONDS
        ]

    def _log_changes(self, followed: MeshChanges) -> None:
        for change in followed.changes:
            log.info("%s", change)
        self._warn_once(set(followed.refused))

    def _warn_once(self, troubles: set[str]) -> None:
        """Log each trouble once, for as long as it lasts."""
        for trouble in sorted(troubles - self._warned):
            log.warning("%s", trouble)
        self._warned = troubles
