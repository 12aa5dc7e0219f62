"""Names that are served in DNS, where other changes happen at the same time or in an unusual way."""

import pytest
from tests.support.rack import Rack

from rackwright.domain.catalogue import JsonObject
from rackwright.store.db.session import Session
from rackwright.store.machines.node_address import approve_address
from rackwright.store.machines.nodes import update_node
from rackwright.store.networks import dns_names
from rackwright.store.networks.domains import create_domain
from rackwright.store.people.users import ancestors_by_deployment

NODE = "n1.rack.example"


async def served(rack: Rack) -> set[str]:
    state = await rack.store.change(dns_names.read_dns_state)
    return {record.name for zone in state.zones.values() for record in zone}


async def serve_everything(rack: Rack) -> None:
    system = await rack.record("system")
    await rack.store.change(lambda session: create_domain(session, "rack.example", system))


async def test_a_deployment_that_is_made_meanwhile_fails_nothing(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its nodes are served by the run that their move asks for."""
    await serve_everything(rack)
    node = await rack.node("n1")
    await rack.store.change(lambda session: update_node(session, node, {"discovery": {"address": "192.0.2.7"}}))

    async def lines_of_a_moment_ago(session: Session) -> dict[int, frozenset[int]]:
        lines = await ancestors_by_deployment(session)
        deployment = await rack.deployment("made-meanwhile")
        await rack.store.change(
            lambda other: other.run("UPDATE nodes SET deployment_id = :made WHERE id = :id", made=deployment, id=node)
        )
        return lines

    with monkeypatch.context() as patched:
        patched.setattr(dns_names, "ancestors_by_deployment", lines_of_a_moment_ago)
        assert NODE not in await served(rack)
    assert NODE in await served(rack)


async def test_an_approved_address_is_served_also_if_its_ssh_has_another_port(rack: Rack) -> None:
    await serve_everything(rack)
    node = await rack.node("n1")
    hint: JsonObject = {"address": "192.0.2.7", "ssh": {"port": 2222}}
    await rack.store.change(lambda session: update_node(session, node, {"hint": hint}))
    assert NODE not in await served(rack)
    await rack.store.change(lambda session: approve_address(session, node))
    assert NODE in await served(rack)
