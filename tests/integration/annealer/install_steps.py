"""Steps that tests of installs share: a machine to install, its run, and a reinstall."""

from tests.support.servers.install_site import INSTALL, HandMachine, Site

from rackwright.domain.machines.install import ENDED, Stage
from rackwright.domain.states import Trigger
from rackwright.store.graph.noderoles import retry_noderole

OPEN_STAGES = [stage for stage in Stage if stage not in ENDED]


async def deploy_machine(site: Site) -> HandMachine:
    [machine] = await site.deployed(1)
    return machine


async def install_run_id(site: Site, machine: HandMachine) -> int:
    run_id = (await site.rack.at(machine.short, INSTALL)).run_id
    assert run_id is not None
    return run_id


async def reinstall(site: Site, machine: HandMachine) -> None:
    noderole = await site.rack.at(machine.short, INSTALL)
    await site.change(lambda session: retry_noderole(session, noderole.id, Trigger.REINSTALL))
