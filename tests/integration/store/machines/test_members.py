"""Members of the mesh as nodes: matched, created, marked and never deleted; and the roles that follow them."""

from tests.support.rack import ADMIN, Rack

from rackwright.domain.catalogue import JsonObject
from rackwright.domain.machines.mesh_members import Member, MemberState, MeshView
from rackwright.domain.states import NodeRoleState
from rackwright.store.db.visibility import EVERYTHING
from rackwright.store.machines.mesh_members import MeshChanges, follow_mesh
from rackwright.store.machines.nodes import NodeRecord, get_node, select_nodes

ALIVE, DEAD, LEFT = MemberState.ALIVE, MemberState.DEAD, MemberState.LEFT
CLUSTER = "SHA256:one"


def view(*members: tuple[str, MemberState], voters: set[str] | None = None) -> MeshView:
    mesh_members = tuple(
        Member(name, state, f"10.0.0.{number}:7946") for number, (name, state) in enumerate(members, 1)
    )
    return MeshView(CLUSTER, mesh_members, None if voters is None else frozenset(voters))


async def follow(rack: Rack, seen: MeshView) -> MeshChanges:
    return await rack.do(lambda session: follow_mesh(session, seen))


async def node(rack: Rack, name: str) -> NodeRecord:
    async with rack.store.read() as session:
        return await get_node(session, name, EVERYTHING)


async def names(rack: Rack) -> list[str]:
    async with rack.store.read() as session:
        return [record.name for record in await select_nodes(session, "WHERE NOT n.system ORDER BY n.name")]


async def holders(rack: Rack, role: str) -> set[str]:
    return {noderole.node for noderole in await rack.noderoles("WHERE r.name = :role AND d.name = 'system'", role=role)}


async def mark(rack: Rack, name: str) -> dict[str, object]:
    mesh_mark = (await node(rack, name)).discovery["mesh"]
    assert isinstance(mesh_mark, dict)
    return {**mesh_mark}


async def test_a_member_that_is_no_node_yet_becomes_one_with_its_roles(rack: Rack) -> None:
    await follow(rack, view(("s1", ALIVE), ("s2.rack.example", DEAD)))
    assert await names(rack) == [ADMIN, "s1.mesh.internal", "s2.rack.example"]
    created, dead = await node(rack, "s1.mesh.internal"), await node(rack, "s2.rack.example")
    assert (created.alive, dead.alive) == (True, False)
    assert created.discovery["mesh"] == {
        "cluster": CLUSTER,
        "member": "s1",
        "state": "alive",
        "address": "10.0.0.1:7946",
        "made": True,
        "failing": {},
    }
    assert created.discovery["address"] == "10.0.0.1"
    assert await holders(rack, "mesh-member") == {"s1.mesh.internal", "s2.rack.example"}


async def events(rack: Rack) -> list[tuple[str, JsonObject]]:
    """Return the events of members; all are of the node of s1."""
    async with rack.store.read() as session:
        rows = await session.rows(
            "SELECT e.kind, e.data, n.name FROM events e JOIN nodes n ON n.id = e.node_id"
            " WHERE starts_with(e.kind, 'mesh.') ORDER BY e.id"
        )
    assert {row.name for row in rows} <= {"s1.mesh.internal"}
    return [(row.kind, row.data) for row in rows]


async def test_deaths_and_failing_software_of_members_are_events_once_each(rack: Rack) -> None:
    def seen(state: MemberState, **checks: str) -> MeshView:
        return MeshView(CLUSTER, (Member("s1", state, "10.0.0.1:7946", checks, {"web": "refused"}),))

    story = [
        seen(ALIVE),
        seen(ALIVE, web="passing"),
        seen(MemberState.SUSPECT, web="failing"),
        seen(ALIVE, web="unknown"),
        seen(DEAD),
        seen(ALIVE),
        seen(ALIVE, web="passing"),
    ]
    for view_of_it in story:
        await follow(rack, view_of_it)
        await follow(rack, view_of_it)
    s1: JsonObject = {"member": "s1"}
    assert await events(rack) == [
        ("mesh.member_joined", s1),
        ("mesh.check_failing", {**s1, "check": "web", "why": "refused"}),
        ("mesh.member_dead", s1),
        ("mesh.member_alive", s1),
        ("mesh.check_passing", {**s1, "check": "web"}),
    ]


async def test_a_view_that_says_nothing_new_changes_nothing(rack: Rack) -> None:
    seen = view(("s1", ALIVE), ("s2", DEAD), voters={"s1"})
    assert (await follow(rack, seen)).changes
    before = await rack.everything()
    again = await follow(rack, seen)
    assert (again.changes, again.refused) == ([], [])
    assert await rack.everything() == before


async def test_a_node_that_is_there_is_found_by_its_full_or_its_short_name(rack: Rack) -> None:
    for name in ("web1.rack.example", "web2.rack.example"):
        await rack.node(name)
    await follow(rack, view(("web1", ALIVE), ("WEB2.rack.example", ALIVE)))
    assert await names(rack) == [ADMIN, "web1.rack.example", "web2.rack.example"]
    assert (await mark(rack, "web1.rack.example"))["made"] is False


async def test_a_short_name_of_two_nodes_is_neither(rack: Rack) -> None:
    for name in ("web.east.example", "web.west.example"):
        await rack.node(name)
    await follow(rack, view(("web", ALIVE)))
    assert "web.mesh.internal" in await names(rack)
    assert await holders(rack, "mesh-member") == {"web.mesh.internal"}


async def test_the_mesh_says_whether_a_node_lives_only_of_those_it_brought(rack: Rack) -> None:
    await rack.node("s1")
    await follow(rack, view(("s1", ALIVE), ("s2", ALIVE)))
    await follow(rack, view(("s1", DEAD), ("s2", DEAD)))
    assert [(await node(rack, name)).alive for name in ("s1.rack.example", "s2.mesh.internal")] == [True, False]
    assert (await mark(rack, "s1.rack.example"))["state"] == "dead"
    assert (await mark(rack, "s2.mesh.internal"))["state"] == "dead"
    await follow(rack, view(("s1", ALIVE), ("s2", ALIVE)))
    assert (await node(rack, "s2.mesh.internal")).alive


async def test_a_member_that_left_keeps_its_node_but_not_its_roles(rack: Rack) -> None:
    await follow(rack, view(("s1", ALIVE), ("s2", ALIVE), voters={"s1", "s2"}))
    await follow(rack, view(("s1", ALIVE), ("s2", LEFT), voters={"s1"}))
    assert (await mark(rack, "s2.mesh.internal"))["state"] == "left"
    assert await holders(rack, "mesh-member") == {"s1.mesh.internal"}
    assert await holders(rack, "mesh-datastore") == {"s1.mesh.internal"}
    await follow(rack, view(("s1", ALIVE), ("s2", ALIVE), voters={"s1"}))
    assert await names(rack) == [ADMIN, "s1.mesh.internal", "s2.mesh.internal"]
    assert await holders(rack, "mesh-member") == {"s1.mesh.internal", "s2.mesh.internal"}


async def test_a_death_does_not_make_what_is_bound_to_the_node_run_again(rack: Rack) -> None:
    await follow(rack, view(("s1", ALIVE), voters={"s1"}))
    await rack.anneal()
    await follow(rack, view(("s1", DEAD), voters={"s1"}))
    bound = await rack.noderoles("WHERE n.name = 's1.mesh.internal'")
    assert {"mesh-member", "mesh-datastore", "ssh-access"} <= {noderole.role for noderole in bound}
    assert {noderole.state for noderole in bound} == {NodeRoleState.ACTIVE}


async def test_the_datastore_moves_with_its_voters_and_stays_where_nobody_can_say(rack: Rack) -> None:
    members = (("s1", ALIVE), ("s2", ALIVE), ("s3", ALIVE))
    await follow(rack, view(*members, voters={"s1", "s2"}))
    assert await holders(rack, "mesh-datastore") == {"s1.mesh.internal", "s2.mesh.internal"}
    await follow(rack, view(*members, voters=None))
    assert await holders(rack, "mesh-datastore") == {"s1.mesh.internal", "s2.mesh.internal"}
    await follow(rack, view(*members, voters={"s2", "s3"}))
    assert await holders(rack, "mesh-datastore") == {"s2.mesh.internal", "s3.mesh.internal"}


async def test_a_member_whose_name_fits_no_node_is_told_and_stops_nobody_else(rack: Rack) -> None:
    followed = await follow(rack, view(("10.0.0.9", ALIVE), ("s1", ALIVE)))
    assert len(followed.refused) == 1
    assert "10.0.0.9" in followed.refused[0]
    assert await holders(rack, "mesh-member") == {"s1.mesh.internal"}
