"""Importing barclamps: all or nothing; to repeat it changes nothing; what is no longer declared goes, unless bound."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.support.rack import ADMIN, Rack, refused

from rackwright.barclamps.loader import built_in
from rackwright.domain.catalogue import Barclamp
from rackwright.domain.errors import Invalid, NotFound, Rule
from rackwright.domain.states import ACTIVE, TODO
from rackwright.store.barclamp_import import import_barclamps
from rackwright.store.bootstrap import first_start
from rackwright.store.store import Store

CATALOGUE = ("jigs", "roles", "attribs", "node_roles", "node_role_edges", "node_role_links", "deployment_roles")

FIRST = """
name: mine
jigs: [{name: my-jig, kind: noop}]
hammers: [{name: my-hammer, kind: ssh}]
roles:
  - {name: kept, jig: noop, template: {kept: {value: 1}}}
  - name: left
    jig: my-jig
    attribs: [{name: left-value, map: left/value, schema: {type: integer}, default: 1}]
  - {name: wants-left, jig: noop, wants-attribs: [left-value]}
"""
SECOND = """
name: mine
roles:
  - {name: kept, jig: noop, template: {kept: {value: 1}}}
"""


async def names(rack: Rack, table: str) -> set[object]:
    rows = await rack.rows(
        f"SELECT t.name FROM {table} t JOIN barclamps b ON b.id = t.barclamp_id WHERE b.name = 'mine'"
    )
    return {row[0] for row in rows}


async def bound(rack: Rack, role: str) -> None:
    await rack.import_text(FIRST)
    await rack.deployment("web")
    await rack.node("n1")
    await rack.deploy("web", ("n1", role))
    await rack.anneal()


async def test_import_is_idempotent(rack: Rack) -> None:
    await bound(rack, "wants-left")
    before = await rack.everything(CATALOGUE)
    await rack.import_text(FIRST)
    await rack.do(lambda session: import_barclamps(session, built_in(test=True)))
    assert await rack.everything(CATALOGUE) == before


async def test_a_start_that_finds_nothing_new_imports_nothing(rack: Rack) -> None:
    async def start(barclamps: Sequence[Barclamp]) -> int:
        """How many barclamps a start imports."""
        counted = "SELECT count(*) FROM events WHERE kind = 'barclamp.imported'"
        [(before,)] = await rack.rows(counted)
        await first_start(rack.store, barclamps, ADMIN)
        [(after,)] = await rack.rows(counted)
        assert isinstance(before, int)
        assert isinstance(after, int)
        return after - before

    usual = built_in(test=True)
    assert await start(usual) == 0
    changed = [replace(barclamp, description="new") if barclamp.name == "test" else barclamp for barclamp in usual]
    assert await start(changed) == len(usual)
    assert await start(changed) == 0
    await rack.import_text(FIRST)
    assert await start(changed) == len(usual), "somebody may have changed what they have in common"
    await rack.do(lambda session: session.run("UPDATE alembic_version SET version_num = '0000'"))
    assert await start(changed) == len(usual), "a newer schema may hold more of them"


async def test_import_is_complete_so_what_left_the_file_leaves_the_database(rack: Rack) -> None:
    await rack.import_text(FIRST)
    await rack.import_text(SECOND)
    assert await names(rack, "roles") == {"kept"}
    for table in ("jigs", "hammers", "attribs"):
        assert await names(rack, table) == set()
    await rack.deployment("web")
    await rack.node("n1")
    with pytest.raises(NotFound, match="left"):
        await rack.bind("web", ("n1", "left"))


async def test_import_without_a_bound_role_is_refused_and_names_it(rack: Rack) -> None:
    await bound(rack, "left")
    before = await rack.everything()
    with refused(Rule.BOUND, "mine", "left", "n1.rack.example"):
        await rack.import_text(SECOND)
    assert await rack.everything() == before


async def test_import_without_an_attrib_in_use_is_refused_and_names_it(rack: Rack) -> None:
    await bound(rack, "wants-left")
    with refused(Rule.BOUND, "left-value", "wants-left", "n1.rack.example"):
        await rack.import_text(
            FIRST.replace("[{name: left-value, map: left/value, schema: {type: integer}, default: 1}]", "[]")
        )


async def test_import_that_would_change_what_the_graph_was_built_by_is_refused(rack: Rack) -> None:
    await bound(rack, "kept")
    with refused(Rule.BOUND, "kept", "implicit"):
        await rack.import_text(SECOND.replace("jig: noop", "jig: noop, flags: [implicit]"))


@pytest.mark.parametrize("relation", ["conflicts", "provides"])
async def test_import_that_would_forbid_what_is_bound_is_refused(rack: Rack, relation: str) -> None:
    await bound(rack, "left")
    await rack.deploy("web", ("n1", "kept"))
    with refused(Rule.BOUND, "kept", "left"):
        await rack.import_text(FIRST.replace("name: kept,", f"name: kept, {relation}: [left],"))


async def test_import_of_a_name_that_another_barclamp_has_is_refused(rack: Rack) -> None:
    with refused(Rule.EXISTS, "mine", "test-parent", "test"):
        await rack.import_text("name: mine\nroles: [{name: test-parent, jig: noop}]")


async def test_import_of_roles_that_need_each_other_in_a_circle_is_refused_with_its_path(rack: Rack) -> None:
    await rack.import_text("name: mine\nroles: [{name: one, jig: noop, requires: [two]}]")
    before = await rack.everything()
    with refused(Rule.CYCLE, "one", "two"):
        await rack.import_text("name: theirs\nroles: [{name: two, jig: noop, requires: [one]}]")
    assert await rack.everything() == before


async def test_import_of_several_is_all_or_nothing(rack: Rack) -> None:
    before = await rack.everything()
    with refused(Rule.EXISTS, "test-parent"):
        await rack.import_text(FIRST, "name: theirs\nroles: [{name: test-parent, jig: noop}]")
    with pytest.raises(Invalid):
        await rack.import_text(FIRST, "name: theirs\nroles: [{name: theirs, jig: noop, flags: [no-flag]}]")
    assert await rack.everything() == before


async def test_import_of_a_new_template_runs_its_noderoles_again(rack: Rack) -> None:
    await bound(rack, "kept")
    await rack.import_text(FIRST.replace("value: 1}}", "value: 2}}"))
    assert await rack.state("n1", "kept") is TODO
    assert await rack.anneal() == [("n1", "kept")]
    assert await rack.state("n1", "kept") is ACTIVE


async def test_refused_import_leaves_nothing_in_the_memory_of_a_server(rack: Rack) -> None:
    other = Rack(Store(rack.store.database))
    with refused(Rule.CYCLE):
        await rack.import_text(
            "name: mine\nroles: [{name: round, jig: noop, requires: [about]}]",
            "name: theirs\nroles: [{name: about, jig: noop, requires: [round]}]",
        )
    await other.import_text("name: mine\nroles: [{name: straight, jig: noop}]")
    async with rack.store.read() as session:
        roles = (await session.catalogue()).catalogue.roles
    assert "straight" in roles
    assert "round" not in roles


async def test_jig_that_leaves_the_file_stays_while_it_does_the_work_of_a_bound_role(rack: Rack) -> None:
    await rack.import_text("name: tools\njigs: [{name: my-tool, kind: noop}]\n")
    await rack.import_text("name: mine\nroles: [{name: worked, jig: my-tool}]\n")
    await rack.node("n1")
    await rack.deployment("web")
    await rack.deploy("web", ("n1", "worked"))
    with refused(Rule.BOUND, "my-tool", "worked", "n1.rack.example"):
        await rack.import_text("name: tools\n")
    assert await rack.rows("SELECT 1 FROM jigs WHERE name = 'my-tool'") == [(1,)]
