"""A workload deployment with machines to bind roles to."""

from tests.support.rack import Rack


async def web(rack: Rack, *nodes: str) -> None:
    """Create a workload deployment and machines, all discovered."""
    await rack.deployment("web")
    for node in nodes:
        await rack.node(node)
    await rack.anneal()
