"""The plan of a commit as people see it: what is made, run again, removed and installed."""

import asyncio
from dataclasses import asdict

from pydantic import BaseModel, Field

from rackwright.api.context import Server
from rackwright.api.routes.target_systems import target_systems
from rackwright.domain.graph.snapshots import CommitPlan
from rackwright.domain.machines.planned_installs import missing_for_install
from rackwright.store.db.session import Session
from rackwright.store.graph.planned_installs import select_planned_installs


class PlannedOut(BaseModel):
    id: int
    node: str
    role: str
    because: str


class InstallOut(BaseModel):
    """A machine that is given an operating system."""

    node: str
    os: str | None = Field(description="Null: none is chosen.", examples=["debian-12"])
    disk: str | None = Field(description="What is wiped; null: no disk is known yet.", examples=["nvme-eui.0025385b"])
    missing: list[str] = Field(description="What is not there yet, and what to do about it.")


class PlanOut(BaseModel):
    """What a commit would do, or did."""

    digest: str = Field(description="Send it with the commit: it is refused if it would do anything else.")
    created: list[PlannedOut]
    rerun: list[PlannedOut] = Field(description="What runs again, and because of which input.")
    held_back: list[PlannedOut] = Field(description="What waits until a cluster it stands on is whole again.")
    removed: list[PlannedOut]
    relinked: list[PlannedOut] = Field(
        description="What comes to stand on others because a barclamp was imported anew, and on which."
    )
    roles_removed: list[str] = Field(description="Roles that the deployment no longer has.")
    moved: list[str] = Field(description="Nodes that come into the deployment.")
    wiped: list[str] = Field(description="Nodes whose disks would be wiped.")
    installs: list[InstallOut] = Field(description="What each wiped node is given, and what it lacks for it.")

    @classmethod
    def of(cls, plan: CommitPlan, installs: list[InstallOut]) -> "PlanOut":
        fields = {key: value for key, value in asdict(plan).items() if key != "deployment_id"}
        return cls.model_validate({**fields, "installs": installs})


async def list_installs(session: Session, server: Server, plan: CommitPlan) -> list[InstallOut]:
    """Return the installs of a plan, each with what it lacks. Simulated machines need no image."""
    installs = await select_planned_installs(session, [line.id for line in (*plan.created, *plan.rerun)])
    if not installs:
        return []
    systems = [] if server.simulates else await asyncio.to_thread(target_systems, server)
    built_names = None if server.simulates else {system.name for system in systems if system.built}
    return [
        InstallOut(
            node=install.node, os=install.os, disk=install.disk, missing=list(missing_for_install(install, built_names))
        )
        for install in installs
    ]
