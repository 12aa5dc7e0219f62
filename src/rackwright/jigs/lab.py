"""The jig of simulated machines: hands the run, with its token, to the machine, which does as a real one would."""

import httpx

from rackwright.domain.networks.call_targets import simulated_address
from rackwright.domain.runs import Outcome, Run
from rackwright.jigs.base import JigNode, Log


class LabJig:
    """The noderole's data may say `simulate: {seconds: 0.1, fail: true}`."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def node_create(self, node: JigNode) -> None:
        """It keeps nothing of nodes."""

    async def node_update(self, node: JigNode) -> None:
        """It keeps nothing of nodes."""

    async def node_delete(self, node: JigNode) -> None:
        """It keeps nothing of nodes."""

    async def run(self, run: Run, log: Log) -> Outcome:
        address = simulated_address(run.input.get("bmc"))
        if address is None:
            return Outcome.failure("This node is no machine of the lab.")
        wanted = run.input.get("simulate")
        simulate = wanted if isinstance(wanted, dict) else {}
        seconds = simulate.get("seconds", 0.05)
        log(f"{run.role} on {run.node}: {seconds} s\n")
        try:
            answer = await self._client.post(
                f"{address}/run", json={"token": run.token, "role": run.role, "seconds": seconds}, timeout=None
            )
        except httpx.TransportError as error:
            return Outcome.failure(f"The machine does not answer: {error or type(error).__name__}")
        if answer.status_code >= 400:
            return Outcome.failure(f"The machine refused: {answer.text[:1000]}")
        return Outcome.failure("It was told to fail.") if simulate.get("fail") else Outcome.success({"ran": run.role})
