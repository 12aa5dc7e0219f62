"""The rolling check of counters: what is wrong is repaired and counted, what is right is left alone."""

from tests.support.rack import Rack, unbroken

from rackwright.domain.states import BLOCKED, TODO
from rackwright.store.runs.upkeep import Upkeep


async def test_a_wrong_count_of_unmet_parents_is_repaired_and_counted_once(rack: Rack) -> None:
    await rack.deployment("web")
    await rack.node("n1")
    await rack.anneal()
    await rack.deploy("web", ("n1", "test-child"))
    child = await rack.at("n1", "test-child")
    assert (child.state, child.unmet) == (BLOCKED, 1)
    upkeep = Upkeep()
    assert (await rack.store.change(upkeep.tick)).repaired == 0
    await rack.do(lambda session: session.run("UPDATE node_roles SET unmet = 2 WHERE id = :id", id=child.id))
    assert (await rack.store.change(upkeep.tick)).repaired == 1
    await unbroken(rack)
    assert (await rack.store.change(upkeep.tick)).repaired == 0
    await rack.finish(*await rack.claim())
    assert await rack.state("n1", "test-child") is TODO
