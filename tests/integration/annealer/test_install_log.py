"""What an install writes into the log of its run, by the routes that its installer reports to."""

import pytest
from tests.support.servers.install_site import INSTALL, HandMachine, Site

from rackwright.domain.machines.install import Stage
from rackwright.store.runs.run_logs import read_log

OTHER = "198.51.100.7"
MB = 10**6


async def _log(site: Site, machine: HandMachine) -> list[str]:
    """The lines of the last install of a machine."""
    [(run_id,)] = await site.rack.rows(
        "SELECT max(a.run_id) FROM install_attempts a JOIN nodes n ON n.id = a.node_id WHERE n.name = :name",
        name=machine.name,
    )
    assert isinstance(run_id, int)
    async with site.server.store.read() as session:
        return "".join(text for _, text in await read_log(session, run_id)).splitlines()


async def _report(machine: HandMachine, body: dict[str, object], source: str = "") -> int:
    secret = machine.site.secrets[machine.name]
    return (await machine.ask("POST", "/api/v2/install/progress", body, secret, source)).status_code


def _image(done: int, round: int = 1) -> dict[str, object]:
    return {"stage": "download", "percent": 20, "bytes": done, "bytes_total": 400 * MB, "round": round}


async def _seconds_pass(site: Site, seconds: int) -> None:
    """The line before was written so long ago."""
    await site.change(
        lambda session: session.run(
            "UPDATE install_attempts SET progress = jsonb_set(progress, '{log,at,told_at}',"
            " to_jsonb((progress #>> '{log,at,told_at}')::float8 - :seconds))",
            seconds=seconds,
        )
    )


def _without_times(lines: list[str]) -> list[str]:
    return [line.partition(" after ")[0] for line in lines]


async def test_the_log_of_an_install_tells_its_stages_and_bytes_as_they_come(site: Site) -> None:
    [machine] = await site.deployed(1)
    await site.reach_stage(machine, Stage.INSTALLING)
    before = await _log(site, machine)
    assert _without_times([line for line in before if not line.startswith("[trace")]) == [
        "install of debian-12 begun",
        "waiting for its turn",
        "waiting for its turn: done",
        "offering the installer to the machine",
        "offering the installer to the machine: done",
        "rebooting into the installer",
        "rebooting into the installer: done",
        "running the installer",
    ]
    assert await _report(machine, {"stage": "download", "percent": 15}) == 204
    await _seconds_pass(site, 1000)
    assert await _report(machine, _image(200 * MB)) == 204
    assert (await _log(site, machine))[len(before) :] == [
        "writing the image",
        "writing the image: 50 % (200 MB of 400 MB, 200 kB/s)",
    ]
    assert await _report(machine, _image(400 * MB)) == 204
    assert await _report(machine, {"stage": "bootloader", "percent": 90}) == 204
    await site.reach_stage(machine, Stage.DONE)
    after = (await _log(site, machine))[len(before) + 3 :]
    assert "(400 MB, " in after[0]
    assert _without_times(after) == [
        "writing the image: done",
        "writing the boot loader",
        "writing the boot loader: done",
        "running the installer: done",
        "booting from its own disk",
        "booting from its own disk: done",
        "checking the installed system",
        "checking the installed system: done",
        "debian-12 is installed",
    ]


async def test_reports_that_are_repeated_wrong_or_of_others_leave_the_log_as_it_is(site: Site) -> None:
    [machine] = await site.deployed(1)
    await site.reach_stage(machine, Stage.INSTALLING)
    for body in (_image(100 * MB), _image(200 * MB)):
        assert await _report(machine, body) == 204
    told, events = await _log(site, machine), await site.events("install.progress")
    for repeated in (_image(100 * MB), _image(200 * MB), {"stage": "download", "percent": 15}):
        assert await _report(machine, repeated) == 204
    for wrong in (
        _image(401 * MB),
        _image(-1),
        _image(2**60),
        _image(300 * MB, round=0),
        {"stage": "down\nload", "percent": 20},
        {"stage": "\x1b[2J", "percent": 20},
        {"stage": "", "percent": 20},
        {"stage": "download", "percent": 20, "bytes": "many"},
    ):
        assert await _report(machine, wrong) == 422
    assert await _report(machine, _image(300 * MB), OTHER) == 409
    assert (await machine.ask("POST", "/api/v2/install/progress", _image(300 * MB), "no secret")).status_code == 404
    assert await _log(site, machine) == told
    assert await site.events("install.progress") == events


@pytest.mark.parametrize("stage", [Stage.INSTALLING, Stage.PROBING])
async def test_the_log_of_an_install_that_failed_says_where_and_why(site: Site, stage: Stage) -> None:
    [machine] = await site.deployed(1)
    await site.reach_stage(machine, stage)
    if stage is Stage.INSTALLING:
        assert await _report(machine, {"stage": "partition", "percent": 5}) == 204
        error = "the disk\ndebian-12 is installed\x1b[2J"
        assert (await machine.result(site.secrets[machine.name], ok=False, error=error)).status_code == 204
        expected = ["partitioning the disk: failed", "running the installer: failed"]
    else:
        site.bmc.boots[machine.name] = "another-boot"
        await site.look()
        expected = ["checking the installed system: failed"]
    lines = await _log(site, machine)
    assert _without_times(lines[-len(expected) :]) == expected
    assert ": The " in lines[-1]
    assert "debian-12 is installed" not in lines


async def test_an_attempt_that_began_before_logs_were_kept_goes_on(site: Site) -> None:
    [machine] = await site.deployed(1)
    await site.reach_stage(machine, Stage.INSTALLING)
    await site.change(lambda session: session.run("UPDATE install_attempts SET progress = '{}'"))
    assert await _report(machine, {"stage": "partition", "percent": 5}) == 204
    await site.reach_stage(machine, Stage.DONE)
    assert (await _log(site, machine))[-1] == "debian-12 is installed"
    assert (await site.rack.at(machine.short, INSTALL)).error == ""
