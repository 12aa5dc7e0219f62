"""The plan of a commit as people see it: what is made, run again, removed and installed."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict

from pydantic import BaseModel, Field

from rackwright.api.context import Server
from rackwright.api.routes.deployments.target_systems import target_systems
from rackwright.domain.graph.snapshots import CommitPlan
from rackwright.domain.installs.disks import Disk
from rackwright.domain.installs.planned_installs import PlannedInstall, missing_for_install
from rackwright.domain.installs.wipes import is_known
from rackwright.store.db.session import Session
from rackwright.store.graph.node_networks import select_network_problems
from rackwright.store.graph.planned_installs import select_resolved_installs


class PlannedOut(BaseModel):
    id: int
    node: str
    role: str
    because: str


class WipedDiskOut(BaseModel):
    """A disk that an install writes to, as discovery found it. All that is on it is lost."""

    name: str = Field(description="The name that stays, by its serial number.", examples=["nvme-eui.0025385b"])
    device: str = Field(description="The kernel's name at the last discovery.", examples=["nvme0n1"])
    bytes: int | None
    serial: str
    known: bool = Field(description="Whether it is known what is on it: an older sledgehammer does not tell.")
    contents: list[str] = Field(
        description="What is on it, for people; empty: nothing.",
        examples=[["sda1 ext4 “pgdata” 1.9 TB, last mounted on /var/lib/postgresql 2026-03-01"]],
    )

    @classmethod
    def of(cls, disk: Disk) -> "WipedDiskOut":
        return cls(
            name=disk.name,
            device=disk.device,
            bytes=disk.bytes,
            serial=disk.serial,
            known=is_known(disk),
            contents=[str(content) for content in disk.contents],
        )


class InstallOut(BaseModel):
    """A machine that is given an operating system."""

    node: str
    os: str | None = Field(description="Null: none is chosen.", examples=["debian-12"])
    disk: str | None = Field(description="What is wiped; null: no disk is known yet.", examples=["nvme-eui.0025385b"])
    missing: list[str] = Field(description="What is not there yet or is wrong, and what to do about it.")
    wipes: list[WipedDiskOut] = Field(description="The disks that are written to, with all that is lost.")

    @classmethod
    def of(cls, install: PlannedInstall, built: Collection[str] | None, refused: Mapping[str, str]) -> "InstallOut":
        """Return an install as a plan shows it. `built`: the images that there are; None: it needs none. `refused`: why
        an image cannot be installed."""
        return cls(
            node=install.node,
            os=install.os,
            disk=install.disk,
            missing=list(missing_for_install(install, built, refused)),
            wipes=[WipedDiskOut.of(disk) for disk in install.resolved.wiped],
        )


class PlanOut(BaseModel):
    """What a commit would do, or did."""

    digest: str = Field(description="Send it with the commit: it is refused if it would do anything else.")
    created: list[PlannedOut]
    rerun: list[PlannedOut] = Field(description="What runs again, and because of which input.")
    held_back: list[PlannedOut] = Field(description="What waits until a cluster it stands on is whole again.")
    kept: list[PlannedOut] = Field(
        description="What keeps what it did although its attributes changed, as an installed system does, and which."
    )
    removed: list[PlannedOut]
    relinked: list[PlannedOut] = Field(
        description="What comes to stand on others because a barclamp was imported anew, and on which."
    )
    roles_removed: list[str] = Field(description="Roles that the deployment no longer has.")
    moved: list[str] = Field(description="Nodes that come into the deployment.")
    wiped: list[str] = Field(description="Nodes whose disks would be wiped.")
    installs: list[InstallOut] = Field(description="What each wiped node is given, and what it lacks for it.")
    network_problems: list[str] = Field(
        description="Why networks of installed nodes cannot be changed as proposed; a commit is refused for it."
    )

    @classmethod
    def of(cls, plan: CommitPlan, installs: list[InstallOut], network_problems: list[str]) -> "PlanOut":
        fields = {key: value for key, value in asdict(plan).items() if key != "deployment_id"}
        return cls.model_validate({**fields, "installs": installs, "network_problems": network_problems})


async def show_plan(session: Session, server: Server, plan: CommitPlan) -> PlanOut:
    """Return a plan as people see it, with its installs and why networks cannot be changed as it has it."""
    problems = await select_network_problems(session, [line.id for line in (*plan.created, *plan.rerun)])
    installs = await list_installs(session, server, plan)
    return PlanOut.of(plan, installs, [f"{node}: {problem}" for node, problem in problems])


async def list_installs(session: Session, server: Server, plan: CommitPlan) -> list[InstallOut]:
    """Return the installs of a plan, each with what it lacks. Simulated machines need no image."""
    installs = await select_resolved_installs(session, [line.id for line in (*plan.created, *plan.rerun)])
    return await show_installs(server, installs)


async def show_installs(server: Server, installs: Sequence[PlannedInstall]) -> list[InstallOut]:
    """Return installs as people see them, each with what it lacks and what it wipes."""
    if not installs:
        return []
    systems = [] if server.simulates else await asyncio.to_thread(target_systems, server)
    built_names = None if server.simulates else {system.name for system in systems if system.size is not None}
    refused = {system.name: system.problem for system in systems if system.problem is not None}
    return [InstallOut.of(install, built_names, refused) for install in installs]
