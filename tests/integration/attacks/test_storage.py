"""How much somebody in quarantine can have the server store: what one registration may say, and not a thousand times
that.

What a machine says of itself replaces what it said before, within a bound that holds however the body is sent. A change
is told to every role and jig that wants to know, by a call that says what changed and not all that there is; they are
shown all of it when the call is made.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.support.machines.signed_registration import registration, signed
from tests.support.servers.install_site import HandMachine, Site, running_site

from rackwright.api.routes.machines.machines import INVENTORY_LIMIT
from rackwright.domain.catalogue import JsonObject
from rackwright.domain.machines.install import Stage
from rackwright.store.db.session import Session
from rackwright.store.hooks.hook_views import brief_before, forget_last_state, read_shown_view
from rackwright.store.machines.nodes import delete_node

MOST_CALL = 8 * 1024
"""Bytes that a stored call may take."""
LARGE = INVENTORY_LIMIT - 4096
BOOTS = 200


@pytest.fixture
async def site(started_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with running_site(tmp_path, started_url) as running:
        yield running


async def _discovery(site: Site, machine: HandMachine) -> dict[str, object]:
    [(discovery,)] = await site.rack.rows("SELECT discovery FROM nodes WHERE name = :name", name=machine.name)
    assert isinstance(discovery, dict)
    return discovery


async def _events_of(site: Site, node_id: int) -> int:
    [(count,)] = await site.rack.rows("SELECT count(*) FROM events WHERE node_id = :id", id=node_id)
    assert isinstance(count, int)
    return count


async def _register(machine: HandMachine, bootenv: str, **inventory: object) -> None:
    machine.new_boot()
    assert (await machine.register(bootenv, inventory=inventory)).status_code == 201


async def test_what_a_machine_says_replaces_what_it_said_before(site: Site) -> None:
    machine = HandMachine(site, 1)
    for number in range(4):
        await _register(machine, "sledgehammer", **{f"made-up-{number}": "x" * LARGE})
    assert (await _discovery(site, machine)).keys() == {"address", "made-up-3"}


async def test_what_an_installed_system_leaves_out_sledgehammer_still_knows(site: Site) -> None:
    machine = HandMachine(site, 1)
    await _register(machine, "sledgehammer", cpu={"cores": 8}, kernel="6.1-discovery", disks=[])
    await _register(machine, "local", kernel="6.1", root="/dev/vda1")
    assert await _discovery(site, machine) == {
        "address": machine.address,
        "cpu": {"cores": 8},
        "disks": [],
        "kernel": "6.1",
        "root": "/dev/vda1",
    }
    await _register(machine, "sledgehammer", cpu={"cores": 16})
    assert await _discovery(site, machine) == {
        "address": machine.address,
        "cpu": {"cores": 16},
        "kernel": "6.1",
        "root": "/dev/vda1",
    }


async def test_a_machine_that_calls_its_system_by_many_names_is_no_more_to_be_remembered(site: Site) -> None:
    machine = HandMachine(site, 1)
    for number in range(6):
        await _register(machine, f"made-up-{number}", **{f"key-{number}": "x" * LARGE})
    await _register(machine, "local", root="y" * LARGE)
    assert len(json.dumps(await _discovery(site, machine))) < 2 * INVENTORY_LIMIT


async def test_a_machine_that_says_it_boots_again_and_again_is_written_down_so_often_only(site: Site) -> None:
    machine = HandMachine(site, 1)
    await _register(machine, "sledgehammer")
    id = await site.rack.node_id(machine.name)
    before = await _events_of(site, id)
    answers = Counter[int]()
    for number in range(BOOTS):
        answers[(await machine.heartbeat(boot_id=f"made-up-{number}")).status_code] += 1
        machine.new_boot()
        answers[(await machine.register("sledgehammer")).status_code] += 1
    assert answers.keys() == {201, 204, 429}
    assert answers[429] > 0
    assert await _events_of(site, id) - before <= 2 * (answers[201] + answers[204])


async def test_a_body_without_a_length_is_no_way_around_its_bound(site: Site) -> None:
    machine = HandMachine(site, 1)
    inventory = {"blob": "x" * INVENTORY_LIMIT}
    body = registration(machine.key, await machine.challenge(), [machine.mac], inventory=inventory)

    async def in_parts() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 4096):
            yield body[start : start + 4096]

    async with site.machine_client(machine.address) as client:
        headers = signed(machine.key, body)
        answer = await client.post("/api/v2/nodes/register", content=in_parts(), headers=headers)
    assert "content-length" not in answer.request.headers
    assert answer.status_code == 413


async def test_calls_of_hooks_stay_small_however_much_a_machine_says(site: Site) -> None:
    machine = HandMachine(site, 1)
    for number in range(5):
        await _register(
            machine, "sledgehammer", blob=f"{number}" * LARGE, **{f"key-{number}-{n}": n for n in range(200)}
        )
    sizes = await site.rack.rows(
        "SELECT count(*), max(octet_length(view::text)) FROM hook_calls WHERE node_id = :id",
        id=await site.rack.node_id(machine.name),
    )
    [(calls, largest)] = sizes
    assert isinstance(calls, int)
    assert isinstance(largest, int)
    assert calls > 1, "somebody is told"
    assert largest < MOST_CALL


async def test_who_is_told_by_a_small_call_is_shown_all_of_the_node(site: Site) -> None:
    machine = HandMachine(site, 1)
    await _register(machine, "sledgehammer", blob="1" * LARGE)
    await site.server.hooks.deliver_all()
    await _register(machine, "sledgehammer", blob="2" * LARGE)
    id = await site.rack.node_id(machine.name)
    [(call, stored), *_] = await site.rack.rows(
        "SELECT id, view FROM hook_calls WHERE subject = 'node' AND subject_id = :id ORDER BY id", id=id
    )
    assert isinstance(call, int)
    assert isinstance(stored, dict)
    async with site.server.store.read() as session:
        view = await read_shown_view(session, call, "node", id, stored)
    assert view is not None
    assert view["discovery"] == {"address": machine.address, "blob": "2" * LARGE}
    assert view["before"] == {
        "boot_id": "d525400000001-boot-1",
        "discovery": {"blob": None},
    }


async def test_the_last_state_of_a_node_that_goes_is_stored_once_and_forgotten_when_all_are_told(site: Site) -> None:
    machine = HandMachine(site, 1)
    await _register(machine, "sledgehammer", blob="x" * LARGE)
    await site.change_graph(lambda session: delete_node(session, machine.name))
    assert await site.rack.rows("SELECT count(*) FROM hook_views") == [(1,)]
    [(largest,)] = await site.rack.rows("SELECT max(octet_length(view::text)) FROM hook_calls")
    assert isinstance(largest, int)
    assert largest < MOST_CALL
    assert [call.error for call in await site.server.hooks.deliver_all() if call.error] == []
    assert await site.rack.rows("SELECT count(*) FROM hook_views") == [(0,)]


async def test_two_calls_that_end_at_once_do_not_leave_the_last_state_to_each_other(site: Site) -> None:
    machine = HandMachine(site, 1)
    await _register(machine, "sledgehammer", blob="x" * LARGE)
    await site.change_graph(lambda session: delete_node(session, machine.name))
    calls = [*await site.rack.rows("SELECT id, view_id FROM hook_calls WHERE view_id IS NOT NULL")]
    first, *others = calls
    assert others != []
    ended = asyncio.Event()

    async def end(session: Session, *ending: Sequence[object]) -> None:
        for id, view_id in ending:
            await session.run("DELETE FROM hook_calls WHERE id = :id", id=id)
            assert isinstance(view_id, int)
            await forget_last_state(session, view_id)

    async def end_others(session: Session) -> None:
        await ended.wait()
        await end(session, *others)

    ending = asyncio.create_task(site.change(end_others))

    async def end_first(session: Session) -> None:
        await end(session, first)
        ended.set()
        await asyncio.wait({ending}, timeout=0.5)  # whoever does not wait for us is through by now

    await site.change(end_first)
    await ending
    assert await site.rack.rows("SELECT count(*) FROM hook_views") == [(0,)]


def test_of_what_changed_the_old_values_are_kept_as_far_as_they_are_small() -> None:
    old: JsonObject = {
        "discovery": {"address": "192.0.2.1", "blob": "x" * 1000, "cpu": 8, "gone": 1},
        "bootenv": "local",
    }
    new: JsonObject = {"discovery": {"address": "192.0.2.2", "blob": "y", "cpu": 8, "new": 2}, "bootenv": ""}
    assert brief_before(old, new) == {
        "discovery": {"address": "192.0.2.1", "blob": None, "gone": 1, "new": None},
        "bootenv": "local",
    }
    values: JsonObject = {f"key-{number}": "x" * 200 for number in range(1000)}
    many: JsonObject = {"discovery": {**values, "address": "192.0.2.1"}}
    before = brief_before(many, {"discovery": {}})
    assert len(json.dumps(before)) < MOST_CALL
    assert before["discovery"]["address"] == "192.0.2.1"  # type: ignore[call-overload,index]


# --- what an installer says


async def test_an_installer_that_reports_without_end_is_told_to_wait(site: Site) -> None:
    [machine] = await site.deployed(1)
    await site.reach_stage(machine, Stage.INSTALLING)
    answers = [await machine.progress(site.secrets[machine.name], f"step-{number}") for number in range(300)]
    assert {answer.status_code for answer in answers} == {204, 429}
    assert await site.events("install.progress") < 200
    assert (await machine.heartbeat()).status_code != 429, "the node itself is still heard"


async def test_asking_for_a_secret_before_its_time_leaves_no_trace(site: Site) -> None:
    [machine] = await site.deployed(1)
    await site.reach_stage(machine, Stage.PUBLISHING)
    before = await _events_of(site, await site.rack.node_id(machine.name))
    for _ in range(20):
        assert (await machine.fetch_secret()).status_code == 404
    assert await _events_of(site, await site.rack.node_id(machine.name)) == before
