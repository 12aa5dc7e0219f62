"""cloud-init at the end of an install: the server sends the seed, waits for its end, and tells what came of it.

How it gets there, and what Debian's cloud-init does with it, `tests/e2e/cloud_init_scenarios.py` shows on a machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from psycopg.types.json import Jsonb
from tests.support.servers.install_site import INSTALL, INSTALLED, HandMachine, Site

from rackwright.annealer.installs import InstallAdvancer
from rackwright.domain.catalogue import JsonObject
from rackwright.domain.installs.cloud_init.status import CloudInitState, CloudInitStatus, Hide
from rackwright.domain.installs.request import RootFile
from rackwright.domain.machines.install import Stage
from rackwright.domain.states import ACTIVE, ERROR
from rackwright.reach.ssh_connections import Unreachable
from rackwright.store.runs.run_logs import read_log

SECRET = "a-password-of-somebody"
USER_DATA = "#cloud-config\nruncmd:\n- echo ${secret:db} >/etc/x\n"
GIVEN: JsonObject = {"user_data": USER_DATA, "secrets": {"db": SECRET}}


@dataclass
class Machines:
    """What the cloud-init of machines answers, and what they were sent."""

    answers: list[CloudInitStatus | Unreachable] = field(default_factory=list)
    sent: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    async def ask(self, node_id: int, label: str, hide: Hide) -> CloudInitStatus | None:
        return self._answer() if label in dict(self.sent) else None

    async def deliver(self, node_id: int, label: str, files: Sequence[RootFile], hide: Hide) -> CloudInitStatus:
        answer = self._answer()
        self.sent.append((label, {file.path: file.content for file in files}))
        return answer

    def _answer(self) -> CloudInitStatus:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Unreachable):
            raise answer
        return answer


PENDING = CloudInitStatus(CloudInitState.PENDING)
DONE = CloudInitStatus(CloudInitState.DONE)


async def probing(site: Site, machines: Machines, given: JsonObject) -> HandMachine:
    """A machine that has just booted its installed system, and was given user-data."""
    machine = await site.discovered(1)
    await site.rack.deployment("web")
    await site.rack.bind("web", (machine.name, INSTALLED))
    await site.rack.set_role_data("web", INSTALL, {"provisioner": given})
    await site.rack.commit("web")
    await site.reach_stage(machine, Stage.WAITING)
    # The server of this site has no images; one that has them freezes which one it is.
    await site.change(
        lambda session: session.run("UPDATE install_attempts SET frozen = frozen || :image", image=Jsonb({"image": {}}))
    )
    await site.reach_stage(machine, Stage.PROBING)
    use(site, machines)
    return machine


def use(site: Site, machines: Machines) -> None:
    site.installs = InstallAdvancer(site.server.store, replace(site.installs.reach, cloud_init=machines))


async def log(site: Site) -> str:
    [(run_id,)] = await site.rack.rows("SELECT max(run_id) FROM install_attempts")
    assert isinstance(run_id, int)
    async with site.server.store.read() as session:
        return "".join(text for _, text in await read_log(session, run_id))


async def test_the_end_of_cloud_init_is_waited_for(site: Site) -> None:
    machines = Machines([PENDING, PENDING, DONE])
    machine = await probing(site, machines, GIVEN)
    for _ in range(2):
        await site.look()
        assert await site.stage(machine) is Stage.PROBING
    await site.look()
    assert await site.stage(machine) is Stage.DONE
    assert await site.rack.state(machine.short, INSTALL) is ACTIVE
    assert "was given its user-data over SSH" in await log(site)
    assert "cloud-init is done\n" in await log(site)


async def test_another_server_goes_on_with_the_same_seed(site: Site) -> None:
    machines = Machines([PENDING])
    machine = await probing(site, machines, GIVEN)
    await site.look()
    await site.restart()
    use(site, machines)
    machines.answers = [DONE]
    await site.look()
    assert await site.stage(machine) is Stage.DONE
    assert len(machines.sent) == 1, "it has it already"


async def test_the_secret_is_in_what_is_sent_over_ssh_and_nowhere_else(site: Site) -> None:
    reason = f"it says {SECRET} in its log"
    machines = Machines([PENDING, CloudInitStatus(CloudInitState.FAILED, reason)])
    machine = await probing(site, machines, GIVEN)
    config = await machine.config(site.secrets[machine.name])
    assert "user_data" not in config.text
    await site.look()
    await site.look()
    [user_data] = {files["/var/lib/cloud/seed/nocloud/user-data"] for _, files in machines.sent}
    assert SECRET in user_data
    for table in ("install_attempts", "runs", "run_logs", "events", "deployment_roles", "snapshot_roles"):
        rows = await site.rack.rows(f"SELECT t::text FROM {table} t")
        assert rows
        assert not [row for row in rows if SECRET in str(row)], table
        if table in ("install_attempts", "events"):
            assert not [row for row in rows if "runcmd" in str(row)], f"{table} is served"


async def test_a_cloud_init_that_fails_is_an_error_with_its_reason(site: Site) -> None:
    machines = Machines([CloudInitStatus(CloudInitState.FAILED, "its status is error: no such package")])
    machine = await probing(site, machines, GIVEN)
    await site.look()
    assert await site.rack.state(machine.short, INSTALL) is ERROR
    assert await site.error(machine) == (
        "The system is installed and runs, but its cloud-init failed: its status is error: no such package"
    )
    assert await machine.what_to_boot() == "local", "it is to be looked at"


async def test_a_machine_that_cannot_be_reached_is_asked_again_and_the_log_tells_it_once(site: Site) -> None:
    machines = Machines([Unreachable("no route"), Unreachable("no route"), DONE])
    machine = await probing(site, machines, GIVEN)
    for _ in range(3):
        await site.look()
    assert await site.stage(machine) is Stage.DONE
    assert (await log(site)).count("trying again: no route") == 1


async def test_a_reboot_that_user_data_asked_for_is_no_failure(site: Site) -> None:
    machines = Machines([PENDING, DONE])
    machine = await probing(site, machines, GIVEN)
    await site.look()
    reported, site.bmc.boots[machine.name] = site.bmc.boots[machine.name], "another-boot"
    await site.look()
    assert await site.stage(machine) is Stage.PROBING, "it has not reported that boot yet"
    site.bmc.boots[machine.name] = reported
    await site.look()
    assert await site.stage(machine) is Stage.DONE


async def test_without_user_data_nothing_is_sent(site: Site) -> None:
    machines = Machines([PENDING])
    machine = await probing(site, machines, {})
    await site.look()
    assert await site.stage(machine) is Stage.DONE
    assert machines.sent == []
