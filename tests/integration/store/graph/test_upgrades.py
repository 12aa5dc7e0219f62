"""A barclamp that is imported again with other requires reaches bound noderoles by a commit, in `system` at once."""

from tests.support.rack import Rack, refused, unbroken

from rackwright.barclamps.loader import known_kinds
from rackwright.domain.barclamps.barclamp_file import parse_barclamp
from rackwright.domain.errors import Rule
from rackwright.domain.states import ACTIVE, BLOCKED, TODO
from rackwright.store.barclamp_import import import_barclamps

ROLES = """
name: mine
roles:
  - {name: base, jig: noop, attribs: [{name: base-port, map: base/port, schema: {type: integer}, default: 80}]}
  - {name: local, jig: noop, flags: [implicit]}
  - {name: wiper, jig: noop, flags: [destructive]%s}
  - {name: app, jig: noop%s}
  - {name: top, jig: noop, requires: [app]}
  - {name: found, jig: noop, flags: [discovery]%s}
"""


def roles(app: str = "", wiper: str = "", found: str = "") -> str:
    return ROLES % tuple(f", {text}" if text else "" for text in (wiper, app, found))


async def deployed(rack: Rack, text: str, *requests: tuple[str, str]) -> None:
    await rack.import_text(text)
    await rack.deployment("web")
    await rack.node("n1")
    await rack.node("n2")
    await rack.deploy("web", *requests)
    await rack.anneal()


async def imported(rack: Rack, text: str) -> list[str]:
    """Import, and return which deployments are outdated afterwards."""
    parsed = parse_barclamp(text, "barclamp.yml", known_kinds())
    return await rack.do(lambda session: import_barclamps(session, [parsed]))


def lines(planned: object) -> set[tuple[str, str]]:
    assert isinstance(planned, tuple)
    return {(line.node.partition(".")[0], line.role) for line in planned}


async def test_new_requires_are_planned_and_bound_by_the_next_commit(rack: Rack) -> None:
    await deployed(rack, roles(), ("n1", "top"), ("n2", "base"))
    assert await imported(rack, roles("requires: [base, local]")) == ["web"]
    assert await rack.parents("n1", "app") == set(), "a deployment changes by its own commits"
    await rack.propose("web")
    plan = await rack.plan("web")
    assert lines(plan.created) == {("n1", "local")}
    assert lines(plan.relinked) == {("n1", "app")}
    assert lines(plan.rerun) == {("n1", "app"), ("n1", "top")}
    assert "base on n2.rack.example and local on n1.rack.example" in plan.relinked[0].because
    assert await rack.state("n1", "app") is ACTIVE, "a plan changes nothing that is committed"
    await rack.commit("web", plan.digest)
    assert await rack.parents("n1", "app") == {("n1", "local"), ("n2", "base")}
    noderoles = (("n1", "local"), ("n1", "app"), ("n1", "top"))
    assert await rack.states(*noderoles) == [TODO, BLOCKED, BLOCKED]
    assert (await rack.at("n1", "top")).cohort == 2
    await unbroken(rack)
    await rack.anneal()
    await rack.anneal()  # what finds its inputs unchanged is active without a run, and ends the first one
    assert await rack.states(*noderoles) == [ACTIVE] * 3
    await rack.propose("web")
    assert (await rack.plan("web")).empty
    assert await imported(rack, roles("requires: [base, local]")) == []


async def test_removed_requires_let_go_of_what_is_no_longer_needed(rack: Rack) -> None:
    await deployed(rack, roles("requires: [base]"), ("n1", "base"), ("n2", "top"))
    await rack.import_text(roles())
    await rack.propose("web")
    plan = await rack.plan("web")
    assert (lines(plan.relinked), lines(plan.removed)) == ({("n2", "app")}, set())
    assert "no longer on base on n1.rack.example" in plan.relinked[0].because
    await rack.commit("web", plan.digest)
    assert await rack.parents("n2", "app") == set()
    assert (await rack.at("n2", "top")).cohort == 1
    await unbroken(rack)
    await rack.anneal()
    await rack.propose("web")
    await rack.unbind("web", ("n1", "base"))
    await rack.commit("web")
    assert await rack.on("n1") >= {"found"}
    assert "base" not in await rack.on("n1")


async def test_wanted_attribs_are_taken_from_their_owner_after_an_upgrade(rack: Rack) -> None:
    await deployed(rack, roles(), ("n1", "app"))
    assert await imported(rack, roles("wants-attribs: [base-port]")) == ["web"]
    await rack.propose("web")
    await rack.commit("web")
    await rack.anneal()
    assert await rack.value("n1", "app", "base/port") == 80
    assert await imported(rack, roles("requires: [base]")) == ["web"], "it stands on it, but takes nothing from it"
    await rack.propose("web")
    assert "attribs" in (await rack.plan("web")).relinked[0].because
    await rack.commit("web")
    linked = "SELECT 1 FROM node_role_links JOIN attribs a ON a.id = attrib_id WHERE a.name = 'base-port'"
    assert await rack.rows(linked) == []


async def test_destructive_one_that_ran_is_linked_and_does_not_run_again(rack: Rack) -> None:
    await deployed(rack, roles(), ("n1", "wiper"))
    await rack.import_text(roles(wiper="requires: [base]"))
    await rack.propose("web")
    plan = await rack.plan("web")
    assert (lines(plan.created), lines(plan.relinked), lines(plan.rerun)) == (
        {("n1", "base")},
        {("n1", "wiper")},
        set(),
    )
    assert (plan.wiped, plan.empty) == ((), False)
    await rack.commit("web", plan.digest)
    assert await rack.anneal() == [("n1", "base")]
    assert await rack.state("n1", "wiper") is ACTIVE
    await unbroken(rack)


async def test_upgrade_that_cannot_be_done_is_refused_with_names_until_it_can(rack: Rack) -> None:
    await deployed(rack, roles(), ("n1", "app"), ("n2", "base"))
    await rack.import_text(roles("requires: [later]"))
    await rack.propose("web")
    with refused(Rule.UNRESOLVED, "app", "later"):
        await rack.plan("web")
    await rack.import_text(roles("requires: [base]"))
    await rack.unbind("web", ("n2", "base"))
    with refused(Rule.ORPHANS, "base", "app"):
        await rack.plan("web")
    await rack.import_text(roles())
    assert lines((await rack.plan("web")).relinked) == set()


async def test_node_that_moved_on_below_is_upgraded_where_it_was_bound_and_stays_there(rack: Rack) -> None:
    await deployed(rack, roles(), ("n1", "app"))
    await rack.deployment("shop", "web")
    await rack.deploy("shop", ("n1", "top"))
    await rack.import_text(roles("requires: [local]"))
    await rack.propose("web")
    assert (await rack.plan("web")).moved == ()
    assert (await rack.commit("web")).moved == ()
    assert (await rack.at("n1", "local")).deployment == "web"
    home = "SELECT d.name FROM nodes n JOIN deployments d ON d.id = n.deployment_id WHERE n.name ~ '^n1'"
    assert await rack.rows(home) == [("shop",)]


async def test_what_the_proposal_takes_out_is_not_upgraded(rack: Rack) -> None:
    await deployed(rack, roles(), ("n1", "app"))
    await rack.import_text(roles("requires: [base]"))
    await rack.propose("web")
    await rack.unbind("web", ("n1", "app"))
    plan = await rack.commit("web")
    assert (lines(plan.created), lines(plan.removed)) == (set(), {("n1", "app")})


async def test_system_follows_with_the_import_or_refuses_it(rack: Rack) -> None:
    await deployed(rack, roles(), ("n1", "app"))
    assert await imported(rack, roles(found="requires: [local]")) == []
    assert await rack.parents("n1", "found") == {("n1", "local")}
    assert (await rack.at("n1", "local")).deployment == "system"
    assert await rack.states(("n1", "local"), ("n1", "found")) == [TODO, BLOCKED]
    await unbroken(rack)
    await rack.anneal()
    before = await rack.everything()
    with refused(Rule.UNRESOLVED, "system", "found", "later"):
        await rack.import_text(roles(found="requires: [later]"))
    assert await rack.everything() == before
    await rack.import_text(roles())
    assert await rack.parents("n1", "found") == set()
    await unbroken(rack)
